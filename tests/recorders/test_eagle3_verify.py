"""The acceptance rules are lossless: over many draws what comes out is distributed as the target says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace_eagle3.proposal import Proposal  # noqa: E402
from spectrace_eagle3.rows import Node  # noqa: E402
from spectrace_eagle3.sampling import Sampler  # noqa: E402
from spectrace_eagle3.verify import Decision, verify_candidates, verify_drawn, verify_greedy  # noqa: E402

pytestmark = pytest.mark.engine

DRAWS = 8000


def _proposal(target_ids: list[int], parents: list[int]) -> Proposal:
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    nodes = [Node(t, p, d, 0) for t, p, d in zip(target_ids, parents, depths)]
    return Proposal(
        nodes=nodes,
        target_ids=target_ids,
        is_chain=parents == list(range(-1, len(parents) - 1)),
        is_drawn=False,
        logits=torch.zeros(1, 5),
        positions=[0],
        input_rms=[1.0],
        token_ids=[0],
        draft_kv_length=0,
    )


def _first_tokens(draw: Callable[[], tuple[Proposal, Decision]]) -> Counter[int]:
    counts = Counter[int]()
    for _ in range(DRAWS):
        proposal, decision = draw()
        counts[proposal.target_ids[decision.path[0]] if decision.path else decision.token_id] += 1
    return counts


def _assert_distributed(counts: Counter[int], p: Any) -> None:
    """Every share is within four standard deviations of its probability."""
    total = counts.total()
    for token, probability in enumerate(p.tolist()):
        deviation = (probability * (1 - probability) / total) ** 0.5
        assert abs(counts[token] / total - probability) <= 4 * deviation + 1e-9, (token, counts, p)


P = torch.tensor([[0.5, 0.2, 0.2, 0.1, 0.0], [0.1, 0.3, 0.1, 0.3, 0.2]], dtype=torch.float64)


@pytest.mark.parametrize(
    "q", [[0.2, 0.2, 0.2, 0.2, 0.2], [0.05, 0.0, 0.05, 0.0, 0.9], [0.5, 0.2, 0.2, 0.1, 0.0]]
)
def test_a_drawn_chain_keeps_the_distribution_of_the_target(q: list[float]) -> None:
    """Whatever the draft's distribution, the first token follows the target's."""
    sampler, draft = Sampler(1.0, seed=11), torch.tensor([q], dtype=torch.float64)

    def draw() -> tuple[Proposal, Decision]:
        proposal = _proposal([sampler.draw(draft[0])], [-1])
        return proposal, verify_drawn(proposal, P, draft, sampler)

    _assert_distributed(_first_tokens(draw), P[0])


@pytest.mark.parametrize("tokens", [[0], [4], [0, 1], [3, 0, 2], [0, 1, 2, 3, 4]])
def test_fixed_candidates_keep_the_distribution_of_the_target(tokens: list[int]) -> None:
    """One candidate or several, likely or impossible: the first token follows the target's distribution."""
    sampler, rows = Sampler(1.0, seed=12), P[[0, *[1] * len(tokens)]]

    def draw() -> tuple[Proposal, Decision]:
        proposal = _proposal(tokens, [-1] * len(tokens))
        return proposal, verify_candidates(proposal, rows, sampler)

    _assert_distributed(_first_tokens(draw), P[0])


def test_the_token_after_an_accepted_one_follows_its_own_row() -> None:
    """In a tree the second token is distributed as the target says after the accepted first."""
    sampler = Sampler(1.0, seed=13)
    proposal = _proposal([0, 1, 3, 1], [-1, -1, 0, 0])
    rows = P[[0, 1, 0, 0, 0]]
    counts = Counter[int]()
    for _ in range(DRAWS):
        decision = verify_candidates(proposal, rows, sampler)
        if decision.path and decision.path[0] == 0:
            counts[
                proposal.target_ids[decision.path[1]] if len(decision.path) > 1 else decision.token_id
            ] += 1
    assert counts.total() > DRAWS / 3
    _assert_distributed(counts, P[1])


def test_greedy_follows_the_path_that_matches() -> None:
    """The walk takes the child that the target wants at each node, and ends with the target's own token."""
    proposal = _proposal([7, 5, 9, 8, 4], [-1, -1, 1, 1, 3])
    assert verify_greedy(proposal, [5, 0, 8, 0, 4, 6]) == Decision([1, 3, 4], 6)
    assert verify_greedy(proposal, [5, 0, 3, 0, 4, 6]) == Decision([1], 3)
    assert verify_greedy(proposal, [2, 0, 8, 0, 4, 6]) == Decision([], 2)


@pytest.mark.parametrize(
    ("sampler", "kept"),
    [
        (Sampler(2.0), [0, 1, 2, 3]),
        (Sampler(1.0, top_k=2), [0, 1]),
        (Sampler(1.0, top_p=0.6), [0, 1]),
        (Sampler(1.0, top_p=0.4), [0]),
        (Sampler(1.0, top_k=3, top_p=0.99), [0, 1, 2]),
    ],
)
def test_processors_keep_what_they_should(sampler: Sampler, kept: list[int]) -> None:
    """Temperature divides; top-k and top-p leave the best, the one that reaches the share included."""
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    found = sampler.processed(logits)[0]
    assert found.isfinite().nonzero().flatten().tolist() == kept
    torch.testing.assert_close(found[kept], logits[0, kept] / sampler.temperature)
