"""What is kept of a round's logits, reduced where they are: a few numbers per node, one call for all.

Nothing here waits for the device. Refuses to keep logits or to know what was accepted.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spectrace_loop.layout import Tree
from spectrace_transformers.reduction import Pack, Workspace, top_choices


class VocabMap:
    """How raw ids become target ids: target id = raw id + d2t[raw id].

    Args:
        d2t: [draft_vocab_size] offsets.
    """

    def __init__(self, d2t: Tensor) -> None:
        self.d2t = d2t.reshape(-1).to("cpu", torch.int64, copy=True)
        self._table = self.d2t + torch.arange(len(self.d2t))

    def target_ids(self, raw_ids: Tensor) -> Tensor:
        """[K] of raw ids [K]."""
        table = self._on(raw_ids.device)
        return table[raw_ids.clamp(0, len(table) - 1)]

    def spread_over(self, p: Tensor) -> Tensor:
        """[K, draft_vocab_size] what a distribution [K, V] of the target gives to each raw id."""
        table, size = self._on(p.device), p.shape[1]
        return p[:, table.clamp(0, size - 1)] * ((table >= 0) & (table < size))

    def _on(self, device: torch.device) -> Tensor:
        if self._table.device != device:
            self._table = self._table.to(device)
        return self._table


def add_target(pack: Pack, workspace: Workspace, tree: Tree, top: int) -> Tensor:
    """Adds what the target thought in each row.

    The logarithm of the normaliser is left to the host: the first choice's logit and probability give it
    (`spectrace_transformers.reduction.log_normaliser`).

    Returns:
        [K+1, V] its probabilities, in memory of the workspace.
    """
    shape, device = tree.logits.shape, tree.logits.device
    rows = workspace.rows("target", shape, device).copy_(tree.logits)
    values, ids = top_choices(rows, min(top, shape[1]))  # [K+1, m]
    p = torch.softmax(rows, -1, out=workspace.rows("p", shape, device))
    judging = _judging(rows, tree)  # [K, V]
    chosen = judging.gather(1, tree.proposal.clamp(0, shape[1] - 1).unsqueeze(1))  # [K, 1]
    pack.add("top", values)
    pack.add("top_ids", ids)
    pack.add("first", p.gather(1, ids[:, :1]))  # [K+1, 1]
    pack.add("chosen", chosen)
    pack.add("better", (judging > chosen).sum(-1))  # [K]
    pack.add("nonfinite", num_faulty(rows))  # [K+1]
    return p


def add_draft(
    pack: Pack,
    tree: Tree,
    p: Tensor,
    draft_logits: Tensor,
    raw: Tensor | None,
    vocab: VocabMap | None,
    top: int,
) -> None:
    """Adds what the draft thought, in its own vocabulary.

    Args:
        pack: gathers the results.
        tree: the round.
        p: [K+1, V] of the target.
        draft_logits: [K, draft_vocab_size], for each node the row that it comes from.
        raw: [K] its id there; None where that is unknown.
        vocab: the map, where raw ids and target ids differ.
        top: alternatives kept per node.
    """
    rows = draft_logits.to(p.device, torch.float32)
    rows = rows.reshape(-1, rows.shape[-1])  # [K, Dv]
    if len(rows) != len(tree.proposal):
        raise ValueError(f"draft_logits has {len(rows)} rows for {len(tree.proposal)} draft tokens")
    values, ids = top_choices(rows, min(top, rows.shape[1]))  # [K, m]
    q = rows.softmax(-1)
    pack.add("draft_top", values)
    pack.add("draft_top_ids", ids)
    pack.add("draft_first", q.gather(1, ids[:, :1]))  # [K, 1]
    pack.add("draft_entropy", torch.special.entr(q).sum(-1))  # [K]
    pack.add("draft_nonfinite", num_faulty(rows))  # [K]
    judged = _judging(p, tree)  # [K, V]
    beside = judged if vocab is None else vocab.spread_over(judged)
    width = min(q.shape[1], beside.shape[1])
    pack.add("overlaps", torch.minimum(q[:, :width], beside[:, :width]).sum(-1))  # [K]
    if raw is not None:
        pack.add("draft_chosen", rows.gather(1, raw.clamp(0, rows.shape[1] - 1).unsqueeze(1)))  # [K, 1]


def num_faulty(rows: Tensor) -> Tensor:
    """[R] how many values are NaN or plus infinity.

    Minus infinity is none of them: a loop hands over what its processors have left, and they rule tokens out
    by it. Recorders that look before the processors count it too.
    """
    return torch.lt(rows, math.inf).logical_not_().sum(-1)


def _judging(rows: Tensor, tree: Tree) -> Tensor:
    """[K, V] of [K+1, V]: for each node the row that judges it."""
    if tree.judges is None:
        return rows[:-1]
    return rows[tree.judges.clamp(0, len(rows) - 1)]
