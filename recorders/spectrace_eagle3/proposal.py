"""What the draft proposes in one step, and what is known about how it came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spectrace_eagle3.rows import DraftRows, Node
from spectrace_eagle3.sampling import Sampler
from spectrace_eagle3.tree import Chain, DynamicTree, Plan, grow_chain, grow_dynamic, grow_static


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """K nodes, and the R distributions they come from."""

    nodes: Sequence[Node]
    target_ids: Sequence[int]
    """[K] after the vocabulary map."""
    is_chain: bool
    is_drawn: bool
    """Tokens are drawn from q; otherwise they are its most probable."""
    logits: Tensor
    """[R, draft_vocab_size] single precision, for each row that the draft read; q is their softmax."""
    positions: Sequence[int]
    """[R] where the rows were run."""
    input_rms: Sequence[float]
    """Per depth, RMS of the states that the draft read."""
    token_ids: Sequence[int]
    """Per depth, the token that was read beside that state; of a tree only the first."""
    draft_kv_length: int
    """Rows of the draft's cache for committed tokens."""

    def ancestors(self) -> Tensor:
        """[K+1, K+1] bool: which of root (row 0) and nodes each may see."""
        size = len(self.nodes) + 1
        seen = torch.eye(size, dtype=torch.bool)
        for index, node in enumerate(self.nodes, 1):
            seen[index] |= seen[node.parent + 1]
        return seen


def propose(rows: DraftRows, plan: Plan, depth: int, sampler: Sampler) -> Proposal:
    """Drafts from what has been read.

    Args:
        rows: the draft, after `begin`.
        plan: chain or tree.
        depth: longest path that is of use.
        sampler: of the target; a chain is drawn from q at its temperature.
    """
    is_drawn = isinstance(plan, Chain) and not sampler.is_greedy
    if isinstance(plan, Chain):
        nodes = grow_chain(rows, depth, sampler.draw_draft)
    elif isinstance(plan, DynamicTree):
        nodes = grow_dynamic(rows, plan, depth)
    else:
        nodes = grow_static(rows, plan, depth)
    logits = torch.stack(rows.logits)  # [R, draft_vocab_size]
    return Proposal(
        nodes=nodes,
        target_ids=rows.target_ids(nodes),
        is_chain=isinstance(plan, Chain),
        is_drawn=is_drawn,
        logits=logits / sampler.temperature if is_drawn else logits,
        positions=rows.positions,
        input_rms=rows.input_rms,
        token_ids=rows.token_ids if isinstance(plan, Chain) else rows.token_ids[:1],
        draft_kv_length=rows.committed,
    )
