"""A look at the values of every tensor: not finite, or all zero.

Two threads read in pieces of 1 MiB and keep none. Up to `FULL_LIMIT` bytes everything is
read; beyond, evenly spaced pieces, and the result says how much of it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrace.checkpoint.records import ITEM_BITS, Fault, Tensor, Values
from spectrace.checkpoint.tensorfile import TensorFile
from spectrace.errors import CheckpointError

FULL_LIMIT = 4 << 30
"""Bytes of values up to which all are read; 4 GiB take two to four seconds from memory."""

CHUNK = 1 << 20

_WORKERS = 2
_PIECES = 64
"""Pieces that one worker takes at a time."""

_FLOATS: dict[str, tuple[Any, int, int]] = {
    "F16": (np.uint16, 0x7FFF, 0x7C00),
    "BF16": (np.uint16, 0x7FFF, 0x7F80),
    "F32": (np.uint32, 0x7FFF_FFFF, 0x7F80_0000),
    "F64": (np.uint64, 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
    "F8_E4M3": (np.uint8, 0x7F, 0x7F),
    "F8_E5M2": (np.uint8, 0x7F, 0x7C),
}
"""Dtype -> unsigned view, mask that drops the sign, smallest magnitude that is not finite.

IEEE 754: all exponent bits set. Source of the eight-bit ones: Micikevicius et al. 2022, arXiv 2209.05433,
table 1.
"""


def scan(
    files: Mapping[str, TensorFile],
    tensors: Mapping[str, Tensor],
    on_progress: Callable[[int], None] | None = None,
    full_limit: int = FULL_LIMIT,
) -> tuple[dict[str, Values], tuple[Fault, ...]]:
    """Looks at the values of tensors whose dtype it knows.

    Args:
        files: name -> open file.
        tensors: those to look at.
        on_progress: told the bytes read so far.
        full_limit: bytes in all up to which every value is read.

    Returns:
        Name -> what was seen, and what could not be read.
    """
    chosen = [t for t in tensors.values() if ITEM_BITS.get(t.dtype, 0) >= 8]
    total = sum(tensor.size for tensor in chosen)
    every = 1 if total <= full_limit else -(-total // full_limit)
    found: dict[str, Values] = {}
    faults: list[Fault] = []
    done = 0
    with ThreadPoolExecutor(_WORKERS) as pool:
        looks = [
            (tensor, [pool.submit(_look, files[tensor.file], tensor, part) for part in _parts(tensor, every)])
            for tensor in chosen
        ]
        for tensor, parts in looks:
            try:
                found[tensor.name] = _sum(tensor, [part.result() for part in parts])
            except CheckpointError as error:
                faults.append(Fault(str(error.path), error.what, tensor.name))
            done += tensor.size
            if on_progress is not None:
                on_progress(done)
    return found, tuple(faults)


def _parts(tensor: Tensor, every: int) -> list[range]:
    """Where the pieces to look at begin, in handfuls that keep all workers busy."""
    starts = range(0, tensor.size, CHUNK * every)
    return [starts[at : at + _PIECES] for at in range(0, len(starts), _PIECES)]


def _sum(tensor: Tensor, parts: Sequence[Values]) -> Values:
    return Values(
        nonfinite=sum(part.nonfinite for part in parts),
        is_zero=bool(parts) and all(part.is_zero for part in parts),
        bytes_read=sum(part.bytes_read for part in parts),
        bytes_total=tensor.size,
    )


def read_array(file: TensorFile, tensor: Tensor, limit: int = 64 << 20) -> NDArray[Any]:
    """All values of a small tensor, in its own shape.

    bfloat16, which numpy lacks, is widened to float32: its bits are the upper half of one.

    Raises:
        CheckpointError: larger than the limit, or of a dtype without a numpy counterpart.
    """
    if tensor.size > limit:
        raise CheckpointError(tensor.file, f"{tensor.size:,} bytes; too large for a table", tensor.name)
    data = b"".join(bytes(piece) for piece in file.chunks(tensor.name, range(0, tensor.size, CHUNK), CHUNK))
    if tensor.dtype == "BF16":
        upper = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return upper.view(np.float32).reshape(tensor.shape)
    if tensor.dtype not in _NUMPY:
        raise CheckpointError(tensor.file, f"dtype {tensor.dtype} cannot be read as numbers", tensor.name)
    return np.frombuffer(data, _NUMPY[tensor.dtype]).reshape(tensor.shape)


_NUMPY = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    **{f"{kind}{bits}": f"<{kind.lower()}{bits // 8}" for kind in "UI" for bits in (16, 32, 64)},
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}


def _look(file: TensorFile, tensor: Tensor, starts: range) -> Values:
    """Some pieces of one tensor."""
    dtype, mask, limit = _FLOATS.get(tensor.dtype, (np.uint8, 0xFF, 0x100))
    nonfinite = seen = 0
    is_zero = True
    magnitude: NDArray[Any] = np.empty(CHUNK // np.dtype(dtype).itemsize, dtype)
    for piece in file.chunks(tensor.name, starts, CHUNK):
        bits: NDArray[Any] = np.frombuffer(piece, dtype)
        out = magnitude[: bits.size]
        np.bitwise_and(bits, dtype(mask), out=out)
        largest = int(out.max()) if out.size else 0
        is_zero = is_zero and not largest
        if largest >= limit:
            nonfinite += int(np.count_nonzero(out >= dtype(limit)))
        seen += len(piece)
    return Values(nonfinite=nonfinite, is_zero=is_zero, bytes_read=seen, bytes_total=tensor.size)
