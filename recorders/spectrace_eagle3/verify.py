"""Acceptance rules: which nodes of a proposal the target keeps, and the token it adds.

All of them are lossless: what comes out is distributed as the target alone would have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from spectrace_eagle3.proposal import Proposal
from spectrace_eagle3.sampling import Sampler


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a proposal."""

    path: Sequence[int]
    """Accepted nodes, root to leaf."""
    token_id: int
    """The target's own token after them."""


def verify(proposal: Proposal, logits: Tensor, sampler: Sampler, table: Tensor) -> Decision:
    """Decides by the rule that fits the proposal.

    Args:
        proposal: K nodes.
        logits: [K+1, vocab_size] of the target after all processors, root first.
        sampler: how tokens are picked.
        table: [draft_vocab_size] target id of each raw id.
    """
    if sampler.is_greedy:
        return verify_greedy(proposal, logits.argmax(-1).tolist())
    p = logits.double().softmax(-1)  # [K+1, vocab_size]
    if not proposal.is_drawn:
        return verify_candidates(proposal, p, sampler)
    q = proposal.logits.double().softmax(-1)  # [R, draft_vocab_size]
    spread = q.new_zeros(len(q), p.shape[1]).index_add_(1, table.to(q.device), q)  # [R, vocab_size]
    return verify_drawn(proposal, p, spread, sampler)


def verify_greedy(proposal: Proposal, picks: Sequence[int]) -> Decision:
    """Follows the target's own picks as far as the proposal has them.

    Args:
        proposal: K nodes.
        picks: [K+1] the target's choice at the root and after each node.
    """
    path: list[int] = []
    at = -1
    while True:
        pick = picks[at + 1]
        following = [i for i, node in enumerate(proposal.nodes) if node.parent == at]
        at = next((i for i in following if proposal.target_ids[i] == pick), -1)
        if at < 0:
            return Decision(path, pick)
        path.append(at)


def verify_drawn(proposal: Proposal, p: Tensor, q: Tensor, sampler: Sampler) -> Decision:
    """Speculative sampling of a chain that was drawn from q.

    Source: Leviathan et al. 2023, arXiv 2211.17192, algorithm 1.

    Args:
        proposal: K nodes.
        p: [K+1, vocab_size] target.
        q: [K, vocab_size] draft, in the target's vocabulary.
        sampler: source of the coins.
    """
    for i, token in enumerate(proposal.target_ids):
        if sampler.coin() * float(q[i, token]) >= float(p[i, token]):
            residual = (p[i] - q[i]).clamp(min=0)
            return Decision(range(i), sampler.draw(residual if residual.sum() > 0 else p[i]))
    return Decision(range(len(proposal.nodes)), sampler.draw(p[-1]))


def verify_candidates(proposal: Proposal, p: Tensor, sampler: Sampler) -> Decision:
    """Tries the children of each node one after the other against what is left of p.

    A child x is taken with probability p(x); if not, p(x) is struck out and the rest scaled up. As the
    children were not drawn, q plays no part.
    Source: SafeAILab/EAGLE eagle/model/utils.py, evaluate_posterior.

    Args:
        proposal: K nodes.
        p: [K+1, vocab_size] target.
        sampler: source of the coins.
    """
    path: list[int] = []
    at = -1
    while True:
        left = p[at + 1].clone()  # [vocab_size]
        taken = None
        for i in (i for i, node in enumerate(proposal.nodes) if node.parent == at):
            token = proposal.target_ids[i]
            if sampler.coin() < float(left[token] / left.sum()):
                taken = i
                break
            left[token] = 0
        if taken is None:
            return Decision(path, sampler.draw(left))
        path.append(taken)
        at = taken
