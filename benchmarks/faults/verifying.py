"""Faults of the verifier, of trees, and of the target's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.faults.rig import Rig, prompts_of, swapped
from spectrace_eagle3 import DynamicTree
from spectrace_eagle3 import decoder as loop
from spectrace_eagle3.proposal import Proposal
from spectrace_eagle3.rows import DraftRows, Node
from spectrace_eagle3.sampling import Sampler
from spectrace_eagle3.target import Target
from spectrace_eagle3.verify import Decision, verify

Verify = Callable[[Proposal, Tensor, Sampler, Tensor], Decision]
TREE = DynamicTree(topk=4, depth=4, num_nodes=12)
TEMPERATURE = 0.8


def with_verifier(
    verifier: Verify, num_prompts: int | None = None, **options: Any
) -> Callable[[Rig, Path], None]:
    """A recording with another verifier.

    Args:
        verifier: decides.
        num_prompts: where rates need more of them than usual.
        options: of the run.
    """

    def record(rig: Rig, out: Path) -> None:
        more: dict[str, Any] = {"prompts": prompts_of(rig.seed, num_prompts)} if num_prompts else {}
        with swapped(loop, verify=verifier):
            rig.eagle3(out, **more, **options)

    return record


# --- sampled chains --------------------------------------------------------------------------------


def _sampled(
    proposal: Proposal,
    logits: Tensor,
    sampler: Sampler,
    table: Tensor,
    accepts: Callable[[float, float], float],
    left: Callable[[Tensor, Tensor, int], Tensor],
) -> Decision:
    """Speculative sampling with any chance of acceptance, and anything to recover from."""
    p = logits.double().softmax(-1)  # [K+1, vocab_size]
    q = proposal.logits.double().softmax(-1)
    spread = q.new_zeros(len(q), p.shape[1]).index_add_(1, table, q)  # [R, vocab_size]
    for i, token in enumerate(proposal.target_ids):
        if sampler.coin() >= accepts(float(p[i, token]), float(spread[i, token])):
            return Decision(range(i), sampler.draw(left(p[i], spread[i], token)))
    return Decision(range(len(proposal.nodes)), sampler.draw(p[-1]))


def _struck(p: Tensor, _q: Tensor, token: int) -> Tensor:
    left = p.clone()
    left[token] = 0
    return left


def _residual(p: Tensor, q: Tensor, _token: int) -> Tensor:
    residual = (p - q).clamp(min=0)
    return residual if residual.sum() > 0 else p


def ignoring_q(proposal: Proposal, logits: Tensor, sampler: Sampler, table: Tensor) -> Decision:
    """Accepts with p alone."""
    return _sampled(proposal, logits, sampler, table, lambda p, _q: p, _struck)


def twice_as_often(proposal: Proposal, logits: Tensor, sampler: Sampler, table: Tensor) -> Decision:
    """Accepts with 2 p / q."""
    return _sampled(proposal, logits, sampler, table, lambda p, q: 2 * p / max(q, 1e-9), _residual)


def recovers_from_p(proposal: Proposal, logits: Tensor, sampler: Sampler, table: Tensor) -> Decision:
    """Draws the recovered token from p and not from what is left of it."""
    return _sampled(proposal, logits, sampler, table, lambda p, q: p / max(q, 1e-9), lambda p, _q, _t: p)


def without_temperature(proposal: Proposal, logits: Tensor, sampler: Sampler, table: Tensor) -> Decision:
    """Compares with the target's distribution before temperature."""
    return verify(proposal, logits * sampler.temperature, sampler, table)


class HotDraft(Sampler):
    """Draws the draft's tokens at twice the temperature that q is computed at."""

    def draw_draft(self, logits: Tensor) -> int:
        """A raw id."""
        return self.draw((logits / (2 * self.temperature)).softmax(-1))


def hot_draft(rig: Rig, out: Path) -> None:
    """The draft's tokens come from another distribution than the recorded q."""
    rig.eagle3(out, sampler=HotDraft(TEMPERATURE, seed=rig.seed))


# --- greedy chains ---------------------------------------------------------------------------------


def wrong_bonus(proposal: Proposal, logits: Tensor, sampler: Sampler, table: Tensor) -> Decision:
    """Commits the pick after the last draft token, however many were accepted."""
    decision = verify(proposal, logits, sampler, table)
    return Decision(decision.path, int(logits[-1].argmax()))


def first_unchecked(proposal: Proposal, logits: Tensor, sampler: Sampler, table: Tensor) -> Decision:
    """Accepts the first draft token whatever the target says."""
    decision = verify(proposal, logits, sampler, table)
    if decision.path or not proposal.nodes:
        return decision
    return Decision([0], int(logits[1].argmax()))


def one_less(proposal: Proposal, logits: Tensor, sampler: Sampler, table: Tensor) -> Decision:
    """Refuses the last of the tokens that the target agrees with."""
    decision = verify(proposal, logits, sampler, table)
    path = list(decision.path)[:-1]
    return Decision(path, int(logits[len(path)].argmax()))


# --- the draft's confidence ------------------------------------------------------------------------


def confident(rows: DraftRows, depth: int, stops: Callable[[float], bool]) -> list[Node]:
    """Drafts a chain that ends behind the first token of a probability that stops it."""
    nodes: list[Node] = []
    for level in range(depth):
        if level:
            rows.read([level - 1], nodes)
        q = rows.logits[level].softmax(-1)
        nodes.append(Node(int(q.argmax()), level - 1, level, level))
        if stops(float(q.max())):
            break
    return nodes


def with_gate(stops: Callable[[float], bool]) -> Callable[[Rig, Path], None]:
    """A recording in which the draft stops by its confidence."""
    from spectrace_eagle3 import proposal as proposing

    def record(rig: Rig, out: Path) -> None:
        def grow(rows: DraftRows, depth: int, _choose: Any) -> list[Node]:
            return confident(rows, depth, stops)

        with swapped(proposing, grow_chain=grow):
            rig.eagle3(out)

    return record


# --- trees -----------------------------------------------------------------------------------------


def by_depth_only(proposal: Proposal, logits: Tensor, sampler: Sampler, table: Tensor) -> Decision:
    """Looks for the pick among all nodes of the next depth, whosever children they are."""
    picks = logits.argmax(-1).tolist()
    path: list[int] = []
    at = -1
    while True:
        pick, depth = picks[at + 1], len(path)
        at = next(
            (
                i
                for i, node in enumerate(proposal.nodes)
                if node.depth == depth and proposal.target_ids[i] == pick
            ),
            -1,
        )
        if at < 0:
            return Decision(path, pick)
        path.append(at)


def only_one(proposal: Proposal, logits: Tensor, sampler: Sampler, table: Tensor) -> Decision:
    """Retrieves the first node of the accepted path only."""
    decision = verify(proposal, logits, sampler, table)
    if len(decision.path) < 2:
        return decision
    return Decision(decision.path[:1], proposal.target_ids[decision.path[1]])


def sees_siblings(rig: Rig, out: Path) -> None:
    """The tree's mask lets a node see every node of the depths above it."""
    ancestors = Proposal.ancestors

    def by_depth(self: Proposal) -> Tensor:
        depth = torch.tensor([-1, *(node.depth for node in self.nodes)])
        return ancestors(self) | (depth.unsqueeze(0) < depth.unsqueeze(1))

    with swapped(Proposal, ancestors=by_depth):
        rig.eagle3(out, plan=TREE)


# --- the target's cache ----------------------------------------------------------------------------


class OffCache(Target):
    """Keeps one row more or fewer after each rejection, and reckons from there."""

    more = 1
    _lag = 0
    """Rows held less rows meant."""

    def reset(self) -> None:
        """Begins a new sequence."""
        super().reset()
        self._lag = 0

    def keep(self, rows: Sequence[int]) -> None:
        """Leaves these rows, moved by what was kept wrongly before."""
        kept = [*range(max(0, self._lag)), *(row + self._lag for row in rows if row + self._lag >= 0)]
        if kept[-1] + 1 < self.length:
            kept = [*kept, kept[-1] + 1] if self.more > 0 else kept[:-1]
            self._lag += self.more
        super().keep(kept)


class ShortCache(OffCache):
    """Cuts one row too many after each rejection."""

    more = -1


def with_cache(cache: type[Target]) -> Callable[[Rig, Path], None]:
    """A recording with another cache of the target."""

    def record(rig: Rig, out: Path) -> None:
        with swapped(loop, Target=cache):
            rig.eagle3(out)

    return record
