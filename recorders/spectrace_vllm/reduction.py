"""What is kept of an engine step, reduced where the tensors are: ids, a few numbers per position.

Every reduction is one call over all rows of the batch, and nothing here waits for the device: no size that
depends on a value, no branch on one. Refuses to keep logits or states, or to know what a request is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from spectrace.format.projections import sign_matrix
from spectrace_transformers.reduction import Array, Pack, top_choices

TOP = 5
"""Alternatives kept per position."""


def add_rows(pack: Pack, input_ids: Tensor, positions: Tensor, at: Tensor) -> Tensor:
    """Adds what was verified: per row the token that was read and where it stands.

    Args:
        pack: gathers the results.
        input_ids: [tokens] of the target's forward.
        positions: [tokens]
        at: [R] the rows with logits; per request the last committed token, then its K draft tokens.

    Returns:
        [R] the token read in each row.
    """
    ids = input_ids[at].to(torch.int64)
    pack.add("row_ids", ids)
    pack.add("row_positions", positions[at].to(torch.int64))
    return ids


def add_target(pack: Pack, logits: Tensor, row_ids: Tensor, *, is_full: bool) -> None:
    """Adds what the target thought in each row, before any processor.

    Args:
        pack: gathers the results.
        logits: [R, V]
        row_ids: [R] token read in each row; row r judges the token of row r + 1.
        is_full: not only the target's pick.
    """
    if not is_full:
        pack.add("top_ids", logits.argmax(-1, keepdim=True))  # [R, 1]
        return
    rows = logits.float()  # [R, V]
    values, ids = top_choices(rows, TOP)  # [R, m]
    judged = row_ids.roll(-1).clamp_(0, rows.shape[1] - 1).unsqueeze(1)  # [R, 1]
    chosen = rows.gather(1, judged)  # [R, 1]
    pack.add("top_ids", ids)
    pack.add("top", values)
    pack.add("chosen", chosen)
    pack.add("norm", rows.logsumexp(-1))  # [R]
    pack.add("better", (rows > chosen).sum(-1))  # [R]
    pack.add("nonfinite", num_nonfinite(rows))  # [R]


def add_draft(
    pack: Pack, logits: Sequence[Tensor], proposal: Tensor, raw_of: Tensor, *, is_greedy: bool, is_full: bool
) -> None:
    """Adds what the draft thought at each depth, in its own vocabulary.

    Args:
        pack: gathers the results.
        logits: per depth [B, Dv]
        proposal: [B, K] ids in the target's vocabulary; K is the number of depths.
        raw_of: [V] raw id of each target id by the engine's map, -1 for none.
        is_greedy: the draft takes its first choice.
        is_full: not only the raw ids.
    """
    depth, batch = len(logits), logits[0].shape[0]
    rows = torch.cat(list(logits)).float()  # [K * B, Dv], depth by depth
    raw = _raw_ids(rows, proposal, raw_of, is_greedy=is_greedy)  # [K * B]
    pack.add("draft_ids", raw.view(depth, batch))
    if not is_full:
        return
    values, ids = top_choices(rows, min(TOP, rows.shape[1]))  # [K * B, m]
    norm = rows.logsumexp(-1, keepdim=True)  # [K * B, 1]
    logq = rows - norm
    pack.add("draft_logprobs", logq.gather(1, raw.clamp(min=0).unsqueeze(1)).view(depth, batch))
    pack.add("draft_entropy", -(logq.exp() * logq).sum(-1).view(depth, batch))
    pack.add("draft_top_ids", ids.view(depth, batch, -1))
    pack.add("draft_top", (values - norm).view(depth, batch, -1))
    pack.add("draft_nonfinite", num_nonfinite(rows).view(depth, batch))


def _raw_ids(rows: Tensor, proposal: Tensor, raw_of: Tensor, *, is_greedy: bool) -> Tensor:
    """The draft's own id of each token it proposed, [K * B].

    A greedy draft's is read off its own logits, so that it does not lean on the map that may be wrong; of
    equal logits it is the one that was proposed.
    """
    mapped = raw_of[proposal.t().reshape(-1).clamp(0, len(raw_of) - 1)]
    if not is_greedy:
        return mapped
    best, first = rows.max(-1)
    proposed = rows.gather(1, mapped.clamp(0, rows.shape[1] - 1).unsqueeze(1))[:, 0]
    return torch.where((proposed == best) & (mapped >= 0), mapped, first)


def num_nonfinite(rows: Tensor) -> Tensor:
    """[R] how many values of each row are NaN or infinite."""
    return rows.isfinite().logical_not_().sum(-1)


class Fingerprints:
    """Projects hidden states on the device.

    Args:
        device: where the states are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._signs: dict[int, Tensor] = {}

    def prepare(self, hidden_size: int) -> None:
        """Brings the signs to the device, which waits for it."""
        signs = sign_matrix(hidden_size) / np.float32(np.sqrt(hidden_size))
        self._signs[hidden_size] = torch.from_numpy(signs).to(self._device)

    def add(self, pack: Pack, states: Sequence[Tensor], positions: Tensor, at: Tensor) -> None:
        """Adds rows of states.

        Args:
            pack: gathers the results.
            states: per boundary [tokens, hidden_size]
            positions: [tokens]
            at: [r] the rows to take.
        """
        rows = torch.stack([state[at] for state in states]).float()  # [A, r, H]
        size = rows.shape[2]
        if size not in self._signs:
            self.prepare(size)
        pack.add("tap_positions", positions[at].to(torch.int64))
        pack.add("tap_rms", rms(rows))
        pack.add("tap_nonfinite", num_nonfinite(rows))
        pack.add("tap_projections", rows @ self._signs[size])  # [A, r, 32]


def rms(rows: Tensor) -> Tensor:
    """Root mean square over the last axis."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1)
    return norms.div_(rows.shape[-1] ** 0.5)


def on_device(indices: Array, device: torch.device) -> Tensor:
    """Indices that the host knows, on the device, without waiting for it."""
    tensor = torch.from_numpy(indices)
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
