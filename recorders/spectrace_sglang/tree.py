"""Trees on the device: who is whose parent, what the target thought of each node, what the draft thought.

Every reduction is one call over all nodes of the batch, and nothing here waits for the device. Refuses to
know what a request is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spectrace_serving.reduction import TOP, num_better, row_values
from spectrace_transformers.reduction import Pack, Workspace

UNLINKED = -2
"""Parent of the root, and of a node that hangs on nothing."""


def parents_of(next_token: Tensor, next_sibling: Tensor) -> Tensor:
    """[B, n] index of each node's parent; `UNLINKED` for the root and for what no other node names.

    A node's siblings name each other one after the other, so the first child is found by leaps that double.

    Args:
        next_token: [B, n] first child of each node, -1 for none.
        next_sibling: [B, n] next child of the same parent, -1 for none.
    """
    batch, n = next_token.shape
    device = next_token.device
    own = torch.arange(n, device=device).expand(batch, n)
    eldest = torch.arange(n + 1, device=device).repeat(batch, 1)  # column n takes what names no node
    eldest.scatter_(1, _slots(next_sibling, n), own)
    for _ in range(max(n - 1, 1).bit_length()):
        eldest = eldest.gather(1, eldest)
    parent = torch.full((batch, n + 1), UNLINKED, device=device)
    parent.scatter_(1, _slots(next_token, n), own)
    return parent.gather(1, eldest)[:, :n]


def _slots(nodes: Tensor, n: int) -> Tensor:
    nodes = nodes.to(torch.int64)
    return torch.where((nodes >= 0) & (nodes < n), nodes, n)


def add_target(
    pack: Pack, workspace: Workspace, logits: Tensor, ids: Tensor, parents: Tensor, is_full: bool
) -> None:
    """Adds what the target thought after each node, and of each node, before any processor.

    Args:
        pack: gathers the results.
        workspace: memory for the rows.
        logits: [B * n, V], the root's row of each request first.
        ids: [B, n] the token of each node.
        parents: [B, n] of `parents_of`.
        is_full: not only the target's pick.
    """
    if not is_full:
        pack.add("top_ids", logits.argmax(-1, keepdim=True))  # [B * n, 1]
        return
    for name, values in row_values(logits, workspace, "target", has_mean=False).items():
        pack.add(name, values)
    judges = _rows(parents.clamp(min=0), ids.shape[1])  # [B * n] the parent's row, that judges the node
    judged = ids.reshape(-1).clamp(0, logits.shape[1] - 1)  # [B * n]
    chosen = logits[judges, judged]  # [B * n]
    pack.add("chosen", chosen.float())
    pack.add("better", num_better(logits, judges, chosen.unsqueeze(1), workspace, "target"))  # [B * n]


def _rows(nodes: Tensor, n: int) -> Tensor:
    """[B * n] where nodes [B, n] of each request lie among the rows of all."""
    first = torch.arange(len(nodes), device=nodes.device).unsqueeze(1) * n
    return (nodes + first).reshape(-1)


def add_draft_rows(
    pack: Pack, workspace: Workspace, rows: Tensor, prefix: str, top: int
) -> tuple[Tensor, Tensor]:
    """Adds what the draft thought in each of its rows.

    Args:
        pack: gathers the results.
        workspace: memory for the rows.
        rows: [R, Dv]
        prefix: of the names.
        top: choices needed, at least.

    Returns:
        [R, m] its first choices, and their ids.
    """
    found = row_values(rows, workspace, "draft", max(TOP, top), has_mean=True)
    for name, values in found.items():
        pack.add(f"{prefix}_{name}", values)
    return found["top"], found["top_ids"]


def add_seed(pack: Pack, workspace: Workspace, logits: Tensor, raw: Tensor, is_full: bool) -> None:
    """Adds what the draft thinks of its first token, of which the next proposal grows.

    Args:
        pack: gathers the results.
        workspace: memory for the rows.
        logits: [B, Dv]
        raw: [B, topk] the raw ids that were chosen.
        is_full: not only these.
    """
    pack.add("seed_raw", raw)
    if not is_full:
        return
    pack.add("seed_chosen", logits.gather(1, raw.clamp(0, logits.shape[1] - 1)).float())  # [B, topk]
    add_draft_rows(pack, workspace, logits, "seed", raw.shape[1])


def places_of(score_index: Tensor, topk: int) -> tuple[Tensor, Tensor, Tensor]:
    """Depth, row and rank of each node of a proposal: [B, K] each.

    Source: SGLang 0.5.23 srt/speculative/spec_utils.py, ``select_top_k_tokens``: topk choices of the first
    token, then at each depth topk choices after each of topk rows, all in one list.

    Args:
        score_index: [B, K] place of each node in that list.
        topk: choices after each token.
    """
    later = score_index - topk
    is_first = later < 0
    depth = torch.where(is_first, 0, 1 + later.div(topk * topk, rounding_mode="floor"))
    row = torch.where(is_first, 0, (later % (topk * topk)).div(topk, rounding_mode="floor"))
    rank = torch.where(is_first, score_index, later % topk)
    return depth, row, rank


def add_nodes(
    pack: Pack,
    workspace: Workspace,
    logits: Sequence[Tensor],
    score_index: Tensor,
    mapped: Tensor,
    raw_of: Tensor,
    topk: int,
    is_drawn: bool,
    is_full: bool,
) -> None:
    """Adds where each node comes from, and what the draft thought of those after the first token.

    Args:
        pack: gathers the results.
        workspace: memory for the rows.
        logits: per depth after the first [B * topk, Dv]
        score_index: [B, K] as `places_of` takes it.
        mapped: [B, K] ids in the target's vocabulary.
        raw_of: [V] raw id of each target id by the engine's map, -1 for none.
        topk: choices after each token.
        is_drawn: the draft draws its tokens, so that none is known by its rank.
        is_full: not only the raw ids.
    """
    depth, row, rank = places_of(score_index, topk)
    pack.add("node_depth", depth)
    pack.add("node_row", row)
    pack.add("node_rank", rank)
    if not logits:
        return
    batch = len(score_index)
    rows = torch.cat(list(logits))  # [(steps - 1) * B * topk, Dv], depth by depth
    own = torch.arange(batch, device=rows.device).unsqueeze(1)
    source = (((depth - 1).clamp(min=0) * batch + own) * topk + row).clamp(0, len(rows) - 1).reshape(-1)
    if is_full:
        values, ids = add_draft_rows(pack, workspace, rows, "row", topk)
    else:
        values, ids = rows.topk(topk)
    at = rank.reshape(-1).clamp(0, ids.shape[1] - 1)  # [B * K]
    raw = ids[source, at]
    # Of equal logits, and of what is no number, the one that was proposed: which one is found is chance.
    best, back = values[source, at], raw_of[mapped.reshape(-1).clamp(0, len(raw_of) - 1)]
    is_tie = (rows[source, back.clamp(0, rows.shape[1] - 1)] == best) | (best != best)
    raw = torch.where((back >= 0) & (is_tie | is_drawn), back, raw)
    pack.add("node_raw", raw.view(score_index.shape))
    if is_full:
        pack.add("node_chosen", rows[source, raw].float().view(score_index.shape))
