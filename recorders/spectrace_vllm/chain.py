"""Chains on the device: what the target thought of each row of a batch, and the draft at each depth.

Every reduction is one call over all rows of the batch, and nothing here waits for the device. Refuses to know
what a request is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spectrace_serving.reduction import num_better, rms, row_values
from spectrace_transformers.reduction import Pack, Workspace


def add_tokens(pack: Pack, input_ids: Tensor, positions: Tensor, at: Tensor) -> Tensor:
    """Adds what was verified: per row the token that was read and where it stands.

    Args:
        pack: gathers the results.
        input_ids: [tokens] of the target's forward.
        positions: [tokens]
        at: [R] the rows with logits; per request the last committed token, then its K draft tokens.

    Returns:
        [R] the token read in each row.
    """
    ids = input_ids.index_select(0, at)
    pack.add("row_ids", ids)
    pack.add("row_positions", positions.index_select(0, at))
    return ids


def add_target(pack: Pack, workspace: Workspace, logits: Tensor, row_ids: Tensor, is_full: bool) -> None:
    """Adds what the target thought in each row, before any processor.

    Args:
        pack: gathers the results.
        workspace: memory for the rows.
        logits: [R, V]
        row_ids: [R] token read in each row; row r judges the token of row r + 1.
        is_full: not only the target's pick.
    """
    if not is_full:
        pack.add("top_ids", logits.argmax(-1, keepdim=True))  # [R, 1]
        return
    for name, values in row_values(logits, workspace, "target", has_mean=False).items():
        pack.add(name, values)
    judged = row_ids.to(torch.int64).roll(-1).clamp_(0, logits.shape[1] - 1).unsqueeze(1)  # [R, 1]
    chosen = logits.gather(1, judged)  # [R, 1]
    pack.add("chosen", chosen[:, 0].float())
    pack.add("better", num_better(logits, None, chosen, workspace, "target"))  # [R]


def add_draft(
    pack: Pack,
    workspace: Workspace,
    logits: Sequence[Tensor],
    proposal: Tensor,
    raw_of: Tensor,
    is_greedy: bool,
    is_full: bool,
) -> None:
    """Adds what the draft thought at each depth, in its own vocabulary.

    Args:
        pack: gathers the results.
        workspace: memory for the rows.
        logits: per depth [B, Dv]
        proposal: [B, K] ids in the target's vocabulary; K is the number of depths.
        raw_of: [V] raw id of each target id by the engine's map, -1 for none.
        is_greedy: the draft takes its first choice.
        is_full: not only the raw ids.
    """
    shape = (len(logits), logits[0].shape[0])  # [K, B]
    rows = torch.cat(list(logits))  # [K * B, Dv], depth by depth
    if is_full:
        found = row_values(rows, workspace, "draft", has_mean=True)
        for name, of_rows in found.items():
            pack.add(f"draft_{name}", of_rows.view(*shape, *of_rows.shape[1:]))
        values, ids = found["top"], found["top_ids"]
    else:
        values, ids = rows.topk(1)  # [K * B, 1]
    mapped = raw_of[proposal.t().reshape(-1).clamp(0, len(raw_of) - 1)]  # [K * B]
    proposed = rows.gather(1, mapped.clamp(0, rows.shape[1] - 1).unsqueeze(1))  # [K * B, 1]
    raw = mapped if not is_greedy else _first_choice(mapped, proposed, values, ids)
    pack.add("draft_ids", raw.view(shape))
    if is_full:
        pack.add("draft_chosen", rows.gather(1, raw.clamp(min=0).unsqueeze(1)).float().view(shape))


def _first_choice(mapped: Tensor, proposed: Tensor, values: Tensor, ids: Tensor) -> Tensor:
    """A greedy draft's raw ids, [K * B], read off its own logits and not off the map, which may be wrong.

    Of equal logits, and of what is no number, it is the one that was proposed.

    Args:
        mapped: [K * B] raw ids of the proposed tokens by the map, -1 for none.
        proposed: [K * B, 1] their logits.
        values: [K * B, m] largest logits.
        ids: [K * B, m] where they are.
    """
    best = values[:, 0]
    is_tie = (proposed[:, 0] == best) | (best != best)  # NaN differs from itself
    return torch.where(is_tie & (mapped >= 0), mapped, ids[:, 0])


def add_inputs(pack: Pack, inputs: Sequence[Tensor]) -> None:
    """Adds the RMS of what the draft read: per depth [B, H]."""
    pack.add("draft_rms", rms(torch.stack(list(inputs)).float()))  # [K, B]
