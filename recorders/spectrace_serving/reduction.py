"""What is kept of the rows of an engine step, reduced where the tensors are: a few numbers of each.

Every reduction is one call over all rows of the batch, and nothing here waits for the device: no size that
depends on a value, no branch on one. Refuses to keep logits or states, or to know what a request is.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from spectrace.format.projections import sign_matrix
from spectrace_transformers.reduction import Array, Pack, Workspace, num_nonfinite, top_choices

TOP = 5
"""Alternatives kept per position."""
VALUES_AT_ONCE = 1 << 25
"""Logits that are reduced in one go: 128 MiB in single precision, and up to three times that for a moment. An
engine has shared out a GPU's memory before a recording begins."""
PREFILL_ROWS = 8
"""Most rows of a prompt whose states are kept."""


def row_values(
    logits: Tensor, workspace: Workspace, name: str, top: int = TOP, *, has_mean: bool
) -> dict[str, Tensor]:
    """What a model thought in each row.

    The logarithm of the normaliser is left to the host: the first choice's logit and probability give it
    (`spectrace_transformers.reduction.log_normaliser`).

    Args:
        logits: [R, V]
        workspace: memory for the rows.
        name: of that memory.
        top: first choices m, of which a row may have fewer.
        has_mean: with the mean logit under the row's own distribution, which gives its entropy.

    Returns:
        nonfinite, first, mean: [R]; top, top_ids: [R, m].
    """
    parts = []
    for part in logits.split(rows_at_once(logits)):
        rows = part.float()
        scratch = workspace.rows(name, rows.shape, rows.device)
        values, ids = top_choices(rows, min(top, rows.shape[1]))  # [r, m]
        found = {"top": values, "top_ids": ids, "nonfinite": _nonfinite_or_zeros(rows, scratch)}
        distribution = torch.softmax(rows, -1, out=scratch)  # [r, V]
        found["first"] = distribution.gather(1, ids[:, :1])[:, 0]
        if has_mean:
            found["mean"] = distribution.mul_(rows).sum(-1)
        parts.append(found)
    return (
        parts[0] if len(parts) == 1 else {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    )


def num_better(logits: Tensor, at: Tensor | None, chosen: Tensor, workspace: Workspace, name: str) -> Tensor:
    """[N] how many logits of a row are larger than one of them.

    Args:
        logits: [R, V]
        at: [N] the row of each; None where it is row after row.
        chosen: [N, 1] logits to compare with, in the precision of the others.
        workspace: memory for the rows.
        name: of that memory.
    """
    found, size = [], rows_at_once(logits)
    for start in range(0, max(len(chosen), 1), size):
        part = slice(start, start + size)
        rows = logits[part] if at is None else logits.index_select(0, at[part])
        scratch = workspace.rows(name, rows.shape, rows.device)
        found.append(torch.gt(rows, chosen[part], out=scratch).sum(-1))
    return found[0] if len(found) == 1 else torch.cat(found)


def rows_at_once(logits: Tensor) -> int:
    """How many rows are reduced in one go, so that what it takes besides is bounded whatever the batch."""
    return max(1, VALUES_AT_ONCE // logits.shape[1])


def _nonfinite_or_zeros(rows: Tensor, scratch: Tensor | None = None) -> Tensor:
    """[R] how many values of each row are NaN or infinite."""
    found = num_nonfinite(rows, scratch)
    return torch.zeros(rows.shape[:-1], device=rows.device) if found is None else found


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

    def add(self, pack: Pack, taken: Tensor) -> None:
        """Adds fingerprints.

        Args:
            pack: gathers the results.
            taken: [A, r, hidden_size] rows of each boundary.
        """
        rows, size = taken.float(), taken.shape[2]
        if size not in self._signs:
            self.prepare(size)
        pack.add("tap_rms", rms(rows))
        pack.add("tap_nonfinite", _nonfinite_or_zeros(rows))
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


def kept_rows(starts: Array, roots: Array) -> tuple[Array, Array]:
    """Which of a request's tokens before and with its last committed one are kept: all of a few, else some.

    >>> kept_rows(np.array([0, 1]), np.array([0, 29]))
    (array([ 0,  1,  6, 11, 16, 21, 26, 30]), array([1, 7]))

    Args:
        starts: [B] number of each request's first token.
        roots: [B] number of its last committed one, counted from there.

    Returns:
        [r] numbers of the tokens, and [B] how many are each request's.
    """
    if not roots.any():
        return starts, np.ones_like(roots)
    kept = [_spread(root) for root in roots.tolist()]
    rows = np.array([start + row for start, own in zip(starts.tolist(), kept) for row in own])
    return rows, np.array([len(own) for own in kept])


def _spread(root: int) -> list[int]:
    """At most PREFILL_ROWS of the numbers up to this one, which is always the last."""
    stride = -(-root // (PREFILL_ROWS - 1)) or 1
    return [*range(0, root, stride), root]
