"""The draft network computes what EAGLE-3 says, with its cache, in pieces, and along every path of a tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace_eagle3 import Chain, Sampler, load_draft  # noqa: E402
from spectrace_eagle3.cache import DraftCache  # noqa: E402
from spectrace_eagle3.faults import HEALTHY  # noqa: E402
from spectrace_eagle3.proposal import propose  # noqa: E402
from spectrace_eagle3.rows import DraftRows  # noqa: E402
from tests.recorders.eagle3_zoo import PLANS, config_json, random_target, random_weights, write_draft  # noqa: E402

pytestmark = pytest.mark.engine

FLAGS: list[dict[str, Any]] = [
    {},
    {"norm_before_residual": True},
    {"norm_before_fc": True},
    {"fc_norm": True},
    {"norm_output": True},
    {"num_hidden_layers": 2, "norm_before_residual": True, "fc_norm": True, "norm_output": True},
]


def _draft(folder: Path, **flags: Any) -> Any:
    config = config_json(**flags)
    return load_draft(write_draft(folder / "draft", config, random_weights(config)), random_target())


def _norm(x: Any, weight: Any) -> Any:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def _turned(x: Any, position: int) -> Any:
    """One head's vector [8] rotated pair by pair: coordinates i and i + 4 by the same angle."""
    out = x.clone()
    for i in range(4):
        angle = torch.tensor(position * 10000.0 ** (-2 * i / 8))
        a, b = x[i], x[i + 4]
        out[i], out[i + 4] = a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()
    return out


def _by_hand(draft: Any, token_ids: list[int], taps: Any) -> tuple[Any, Any]:
    """Logits and states of all positions, one row, one head at a time, from the weights' names alone."""
    w, config = draft.head.state_dict(), draft.head.config
    if config.fc_norm:
        taps = torch.stack([_norm(tap, w[f"fc_norm.{i}.weight"]) for i, tap in enumerate(taps)])
    joined = torch.cat(list(taps), dim=-1)
    if config.norm_before_fc:
        joined = _norm(joined, w["input_norm.weight"])
    states = joined @ w["fc.weight"].T
    embedded = w["embed_tokens.weight"][token_ids]
    for number in range(config.num_layers):
        layer = {name.removeprefix(f"layers.{number}."): value for name, value in w.items()}
        if number == 0:
            normed = _norm(states, layer["hidden_norm.weight"])
            residual = normed if config.norm_before_residual else states
            x = torch.cat((_norm(embedded, layer["input_layernorm.weight"]), normed), dim=-1)
        else:
            residual, x = states, _norm(states, layer["input_layernorm.weight"])
        mixed = []
        q, k, v = (x @ layer[f"self_attn.{name}_proj.weight"].T for name in "qkv")
        for row in range(len(x)):
            heads = []
            for head in range(4):
                mine, theirs = slice(8 * head, 8 * head + 8), slice(8 * (head // 2), 8 * (head // 2) + 8)
                query = _turned(q[row, mine], row)
                scores = torch.stack([query @ _turned(k[i, theirs], i) for i in range(row + 1)]) / 8**0.5
                heads.append(scores.softmax(0) @ v[: row + 1, theirs])
            mixed.append(torch.cat(heads))
        states = residual + torch.stack(mixed) @ layer["self_attn.o_proj.weight"].T
        x = _norm(states, layer["post_attention_layernorm.weight"])
        gate, up = (x @ layer[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        states = states + (gate * gate.sigmoid() * up) @ layer["mlp.down_proj.weight"].T
    normed = _norm(states, w["norm.weight"])
    return normed @ w["lm_head.weight"].T, normed if config.norm_output else states


@pytest.mark.parametrize("flags", FLAGS)
def test_the_network_is_the_one_of_the_paper(tmp_path: Path, flags: dict[str, Any]) -> None:
    """Logits and fed-back states equal a computation by hand, row by row, under every flag."""
    draft = _draft(tmp_path, **flags)
    torch.manual_seed(1)
    taps, token_ids = torch.randn(3, 5, 32), [7, 3, 99, 0, 41]
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    cache = DraftCache(draft.head.config.num_layers)
    states = draft.head.fuse(taps)
    logits, out = draft.head(torch.tensor(token_ids), states, torch.arange(5), mask, cache)
    expected, expected_out = _by_hand(draft, token_ids, taps)
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(out, expected_out, atol=2e-4, rtol=1e-4)


def _rows(draft: Any) -> DraftRows:
    return DraftRows(draft.head, draft.vocab.table, HEALTHY)


def test_reading_in_pieces_is_reading_at_once(tmp_path: Path) -> None:
    """What the cache holds of earlier rows is what one run over all rows would use."""
    draft = _draft(tmp_path)
    torch.manual_seed(1)
    taps, ids = torch.randn(3, 7, 32), [7, 3, 99, 0, 41, 8, 8]
    whole, pieces = _rows(draft), _rows(draft)
    whole.begin(ids, taps, 0)
    for start, end in ((0, 4), (4, 5), (5, 7)):
        pieces.begin(ids[start:end], taps[:, start:end], start)
    torch.testing.assert_close(pieces.logits[0], whole.logits[0])
    assert pieces.positions == whole.positions == [6]
    assert pieces.committed == whole.committed == 7


@pytest.mark.parametrize("plan", ["chain", "dynamic", "static"])
def test_a_proposal_leaves_no_trace_in_the_cache(tmp_path: Path, plan: str) -> None:
    """After drafting, reading on gives what it gives without having drafted, bit by bit."""
    draft = _draft(tmp_path)
    torch.manual_seed(1)
    taps, ids = torch.randn(3, 6, 32), [7, 3, 99, 0, 41, 8]
    drafted, plain = _rows(draft), _rows(draft)
    for rows in (drafted, plain):
        rows.begin(ids[:4], taps[:, :4], 0)
    propose(drafted, PLANS[plan], 4, Sampler())
    for rows in (drafted, plain):
        rows.begin(ids[4:], taps[:, 4:], 4)
    assert torch.equal(drafted.logits[0], plain.logits[0])


@pytest.mark.parametrize("plan", ["dynamic", "static"])
def test_each_path_of_a_tree_is_the_chain_along_it(tmp_path: Path, plan: str) -> None:
    """A node's distribution depends on its ancestors only: the same chain alone gives the same."""
    draft = _draft(tmp_path)
    torch.manual_seed(1)
    taps, ids = torch.randn(3, 4, 32), [7, 3, 99, 0]
    rows = _rows(draft)
    rows.begin(ids, taps, 0)
    proposal = propose(rows, PLANS[plan], 4, Sampler())
    deepest = max(range(len(proposal.nodes)), key=lambda index: proposal.nodes[index].depth)
    assert proposal.nodes[deepest].depth >= 2
    for leaf in {0, deepest, len(proposal.nodes) - 1}:
        path = [leaf]
        while proposal.nodes[path[0]].parent >= 0:
            path.insert(0, proposal.nodes[path[0]].parent)
        wanted = iter([proposal.nodes[index].draft_id for index in path])
        alone = _rows(draft)
        alone.begin(ids, taps, 0)
        sampler = Sampler()
        sampler.draw_draft = lambda logits, wanted=wanted: next(wanted)  # type: ignore[method-assign, misc]
        chain = propose(alone, Chain(len(path)), len(path), sampler)
        for depth, index in enumerate(path):
            node = proposal.nodes[index]
            torch.testing.assert_close(
                proposal.logits[node.source], chain.logits[depth], atol=1e-4, rtol=1e-4
            )
            assert proposal.positions[node.source] == chain.positions[depth] == 3 + depth


def test_a_dynamic_tree_keeps_the_most_probable_nodes(tmp_path: Path) -> None:
    """Scores are sums of log q, parents come first, and nothing left out scores better than what is kept."""
    draft = _draft(tmp_path)
    torch.manual_seed(1)
    rows = _rows(draft)
    rows.begin([7, 3, 99], torch.randn(3, 3, 32), 0)
    plan = PLANS["dynamic"]
    proposal = propose(rows, plan, 4, Sampler())
    nodes = proposal.nodes
    logq = proposal.logits.log_softmax(-1)
    assert len(nodes) == 14
    for index, node in enumerate(nodes):
        assert node.parent < index
        above = nodes[node.parent] if node.parent >= 0 else None
        assert node.depth == (0 if above is None else above.depth + 1)
        before = 0.0 if above is None else above.score
        assert node.score == pytest.approx(before + float(logq[node.source, node.draft_id]), abs=1e-5)
    worst = min(node.score for node in nodes)
    best_first = logq[0].topk(4).values.tolist()
    kept_first = sorted((node.score for node in nodes if node.depth == 0), reverse=True)
    assert kept_first == pytest.approx(best_first[: len(kept_first)])
    assert all(score <= worst + 1e-6 for score in best_first[len(kept_first) :])
