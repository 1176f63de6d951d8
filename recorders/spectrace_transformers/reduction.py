"""What is kept of logits: a few numbers per position, reduced where the logits are.

Every reduction is one call over all positions of a step, and nothing here waits for the device. The
results travel to the host as two flat arrays. Refuses to keep logits or to know what a step is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

Array = npt.NDArray[Any]
Layout = Sequence[tuple[str, bool, Sequence[int]]]
"""Name, whether it is floating point, shape."""

_BLOCKS = 64
"""Number of interleaved parts in which `top_choices` looks for maxima."""
_WIDE = 8192
"""Vocabulary from which the maxima pay; measured on a CPU, where it is 7 times faster at 49,152."""
LOWEST = torch.finfo(torch.float32).min
"""Stands for a logit of minus infinity where one would spoil a sum."""


def top_choices(logits: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The largest logits and their ids, best first: ``logits.topk(top)``, faster where rows are wide.

    The largest elements of a row lie in the columns with the largest maxima, so only those columns
    are searched.

    Args:
        logits: [R, V].
        top: number of choices m.

    Returns:
        Values and ids, both [R, m].
    """
    rows, vocab_size = logits.shape
    if vocab_size < _WIDE:
        return logits.topk(top)
    if vocab_size % _BLOCKS:
        padding = _BLOCKS - vocab_size % _BLOCKS
        logits = pad(logits, (0, padding), value=-math.inf)
    table = logits.view(rows, _BLOCKS, -1)  # [R, blocks, V / blocks]
    columns = table.amax(1).topk(top, sorted=False).indices  # [R, m]
    found = table.gather(2, columns.unsqueeze(1).expand(rows, _BLOCKS, top))  # [R, blocks, m]
    values, at = found.reshape(rows, -1).topk(top)  # [R, m]
    ids = (at // top) * table.shape[2] + columns.gather(1, at % top)
    return values, ids


class Workspace:
    """Two buffers for rows of logits, kept from step to step.

    A fresh block of a few megabytes is mapped and faulted in anew every time, which with 49,152 tokens on a
    CPU costs three times as much as the reductions themselves.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def rows(self, name: str, shape: Sequence[int], device: torch.device) -> Tensor:
        """Memory for rows of this shape, in single precision; what it held is lost."""
        size = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < size or buffer.device != device:
            with torch.inference_mode(False):  # or it could not be written outside that mode later
                buffer = torch.empty(size, dtype=torch.float32, device=device)
            self._buffers[name] = buffer
        return buffer[:size].view(*shape)


def num_nonfinite(rows: Tensor, scratch: Tensor | None = None) -> Tensor | None:
    """[R] how many values of each row are NaN or infinite; None where a look at their sum rules it out.

    A sum of logits is finite if all of them are. Only on a CPU may one look without waiting for a device.
    Otherwise x - x tells: it is 0 for every finite x, and NaN for the others.
    """
    if rows.device.type == "cpu" and math.isfinite(rows.sum().item()):
        return None
    return torch.sub(rows, rows, out=scratch).nan_to_num_(nan=1.0).sum(-1)


class Pack:
    """Small tensors on one device, on their way to another thread.

    Args:
        device: where the reductions run.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._tensors: dict[str, Tensor] = {}

    def add(self, name: str, values: Tensor) -> None:
        """Adds a tensor under a name: single precision or integers, memory that nobody else writes to."""
        self._tensors[name] = values

    @property
    def num_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(values.numel() * values.element_size() for values in self._tensors.values())

    def send(self) -> Callable[[], Mapping[str, Array]]:
        """Starts the copy to the host, where one is needed.

        Returns:
            A function for another thread: waits for the copy and returns the arrays by name.
        """
        if self.device.type != "cpu":
            return self.send_packed()
        arrays = {name: values.numpy() for name, values in self._tensors.items()}
        return lambda: arrays

    def send_packed(self) -> Callable[[], Mapping[str, Array]]:
        """Sends floats and integers as one array each: two copies instead of a dozen."""
        layout = [(name, t.is_floating_point(), t.shape) for name, t in self._tensors.items()]
        floats = [t.reshape(-1) for t in self._tensors.values() if t.is_floating_point()]
        ints = [t.reshape(-1) for t in self._tensors.values() if not t.is_floating_point()]
        arrived = _to_host(floats, self.device), _to_host(ints, self.device)
        event = None
        if self.device.type == "cuda":
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(self.device))
        return _Arrival(*arrived, event, layout)


def _to_host(parts: list[Tensor], device: torch.device) -> Array:
    """All parts as one flat array, which on CUDA is filled only after the copy has run."""
    if not parts:
        return np.zeros(0)
    flat = torch.cat(parts)
    if device.type != "cuda":
        return flat.cpu().numpy()
    pinned = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
    pinned.copy_(flat, non_blocking=True)
    return pinned.numpy()


class _Arrival:
    """The arrays of a `Pack` on their way."""

    __slots__ = ("_event", "_floats", "_ints", "_layout")

    def __init__(self, floats: Array, ints: Array, event: Any, layout: Layout) -> None:
        self._floats = floats
        self._ints = ints
        self._event = event
        self._layout = layout

    def __call__(self) -> dict[str, Array]:
        if self._event is not None:
            self._event.synchronize()
        arrays = {}
        floats = ints = 0
        for name, is_float, shape in self._layout:
            size = math.prod(shape)
            if is_float:
                arrays[name] = self._floats[floats : floats + size].reshape(shape)
                floats += size
            else:
                arrays[name] = self._ints[ints : ints + size].reshape(shape)
                ints += size
        return arrays


def reduce_logits(
    pack: Pack,
    workspace: Workspace,
    proposal: Tensor,
    target_logits: Tensor,
    draft_logits: Tensor | None,
    top: int,
    *,
    masked: bool,
) -> None:
    """Adds what is kept of one step's logits, target rows first, then draft rows.

    The logarithm of the normaliser is not computed over the rows again: the first choice's logit and
    probability give it (`log_normaliser`).

    Args:
        pack: gathers the results.
        workspace: memory for the rows.
        proposal: [K] target ids.
        target_logits: [K+1, V].
        draft_logits: [K, V'] scores by target id, where the draft has any.
        top: alternatives kept per position, at least 2.
        masked: minus infinity is a processor's way to rule a token out and no fault.
    """
    num_drafted = len(proposal)
    rows = _stacked(workspace, target_logits, draft_logits)  # [R, V]
    if masked:
        rows.clamp_(min=LOWEST)  # 0 * -inf would spoil the entropy
    scratch = workspace.rows("scratch", rows.shape, rows.device)
    nonfinite = num_nonfinite(rows, scratch)
    if nonfinite is not None:
        pack.add("nonfinite", nonfinite)  # [R]
    values, ids = top_choices(rows, top)  # [R, m]
    distribution = torch.softmax(rows, -1, out=scratch)
    # The last target row has no proposed token; any id will do there.
    wanted = [proposal, ids[num_drafted, :1]]
    if draft_logits is not None:
        wanted.append(proposal)
    chosen = rows.gather(1, torch.cat(wanted).unsqueeze(1))  # [R, 1]
    pack.add("top", values)
    pack.add("top_ids", ids)
    pack.add("first", distribution.gather(1, ids[:, :1]))  # [R, 1]
    pack.add("chosen", chosen)
    pack.add("better", (rows[:num_drafted] > chosen[:num_drafted]).sum(-1))  # [K]
    if draft_logits is not None:
        p, q = distribution[:num_drafted], distribution[num_drafted + 1 :]  # [K, V]
        pack.add("overlaps", torch.minimum(p, q, out=p).sum(-1))  # [K]
        pack.add("mean", q.mul_(rows[num_drafted + 1 :]).sum(-1))  # [K]


def _stacked(workspace: Workspace, target_logits: Tensor, draft_logits: Tensor | None) -> Tensor:
    """Both in one tensor of single precision, so that every reduction is one call.

    Of two widths the narrower is filled up with what no model ever says.
    """
    parts = [target_logits]
    if draft_logits is not None:
        parts.append(draft_logits.to(target_logits.device))
        missing = target_logits.shape[1] - draft_logits.shape[1]
        if missing:
            narrow = int(missing > 0)
            parts[narrow] = pad(parts[narrow], (0, abs(missing)), value=LOWEST)
    shape = (sum(len(part) for part in parts), parts[0].shape[1])
    return torch.cat(parts, out=workspace.rows("rows", shape, target_logits.device))


def log_normaliser(first_logit: Array, first_probability: Array) -> Array:
    """Logarithm of the sum of exponentials of a row, from its largest element x and softmax p there.

    p = exp(x - log Z), so log Z = x - log p. As p is at least 1/V the logarithm is exact to a few
    units in the last place.

    >>> logits = np.array([1.0, 3.0, 2.0])
    >>> p = np.exp(3.0) / np.exp(logits).sum()
    >>> bool(np.isclose(log_normaliser(np.array([3.0]), np.array([p]))[0], np.log(np.exp(logits).sum())))
    True
    """
    result: Array = first_logit - np.log(first_probability)
    return result
