"""Files of tensors: safetensors headers, checked before they are believed, and values read on demand.

A header that lies costs the tensors it lies about; the others stay readable. Nothing is mapped into memory:
a file that is cut while it is read gives a sentence and not a signal.
Format: safetensors README, section "Format" (8 bytes length, JSON header, values).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from spectrace.checkpoint.files import file_size, open_file, parse_object, read_at, read_into
from spectrace.checkpoint.records import ITEM_BITS, Fault, Tensor
from spectrace.errors import CheckpointError

HEADER_LIMIT = 8 << 20
"""Largest header that is read, in bytes; a file of 50,000 tensors needs about 5 MB."""

_MOST_AXES = 16


class TensorFile(Protocol):
    """A file whose tensors can be listed without their values, and read in pieces."""

    tensors: Mapping[str, Tensor]
    faults: tuple[Fault, ...]

    def chunks(self, name: str, starts: range, size: int) -> Iterator[memoryview]:
        """Pieces of a tensor's values, one per start in bytes; each is good until the next one."""


class SafetensorsFile:
    """One .safetensors file.

    Args:
        path: the file.
        name: what to call it, relative to the checkpoint.

    Raises:
        CheckpointError: nothing of it can be read.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        with open_file(path) as file:
            size = file_size(file)
            header = _header(file, path, size)
            self._first = 8 + len(header)
        entries = parse_object(header, path, "its header ")
        entries.pop("__metadata__", None)
        found = [self._tensor(key, entry, name) for key, entry in entries.items()]
        faults = [item for item in found if isinstance(item, Fault)]
        tensors = sorted((t for t in found if isinstance(t, Tensor)), key=lambda t: (t.start, t.size))
        faults += self._layout_faults(tensors, size)
        bad = {fault.tensor for fault in faults}
        self.tensors: Mapping[str, Tensor] = {t.name: t for t in tensors if t.name not in bad}
        self.faults = tuple(faults)

    def chunks(self, name: str, starts: range, size: int) -> Iterator[memoryview]:
        """See `TensorFile`.

        Raises:
            CheckpointError: the file changed since its header was read.
        """
        tensor = self.tensors[name]
        buffer = memoryview(bytearray(min(size, tensor.size)))
        with open_file(self._path) as file:
            for start in starts:
                piece = buffer[: min(size, tensor.size - start)]
                read_into(file, self._path, tensor.start + start, piece)
                yield piece

    def _tensor(self, name: str, entry: Any, file: str) -> Tensor | Fault:
        """One entry of the header, or what is wrong with it."""
        dtype, shape, span = _fields(entry)
        what = None
        if dtype is None or shape is None or span is None:
            what = "its header entry is no dtype, shape and two offsets"
        elif dtype not in ITEM_BITS:
            what = f"dtype {dtype[:20]!r} is not one that safetensors has"
        else:
            bits = ITEM_BITS[dtype] * math.prod(shape)
            start, end = span
            if bits != 8 * (end - start):
                needs = f"{-(-bits // 8):,}" if bits < 2**63 else "more than 2^60"
                what = f"its shape needs {needs} bytes, its offsets span {end - start:,}"
        if what is not None:
            return Fault(str(self._path), what, name)
        assert dtype is not None
        assert shape is not None
        assert span is not None
        begin = self._first + span[0]
        return Tensor(name=name, dtype=dtype, shape=shape, file=file, start=begin, size=span[1] - span[0])

    def _layout_faults(self, tensors: list[Tensor], size: int) -> list[Fault]:
        """Tensors beyond the end of the file, overlapping tensors, and bytes that belong to none."""
        faults = []
        end, before = self._first, ""
        for tensor in tensors:
            if tensor.start + tensor.size > size:
                lost = tensor.start + tensor.size - size
                what = f"the file ends {lost:,} bytes before its last value"
                faults.append(Fault(str(self._path), what, tensor.name))
            elif tensor.start < end and tensor.size:
                what = f"its values overlap those of {_short(before)}"
                faults.append(Fault(str(self._path), what, tensor.name))
            elif tensor.start > end:
                what = f"{tensor.start - end:,} bytes before it belong to no tensor"
                faults.append(Fault(str(self._path), f"its header leaves a hole: {what}", None))
            if tensor.start + tensor.size > end:
                end, before = tensor.start + tensor.size, tensor.name
        if end < size:
            what = f"{size - end:,} bytes at its end belong to no tensor"
            faults.append(Fault(str(self._path), what, None))
        return faults


def _header(file: Any, path: Path, size: int) -> bytes:
    """The JSON header, once its length is plausible."""
    if size < 8:
        raise CheckpointError(path, f"{size:,} bytes; too short for a safetensors file")
    length = int.from_bytes(read_at(file, path, 0, 8), "little")
    if length > size - 8:
        raise CheckpointError(
            path, f"truncated, or no safetensors file: its header claims {length:,} bytes of {size:,}"
        )
    if length > HEADER_LIMIT:
        raise CheckpointError(path, f"its header claims {length:,} bytes; more than {HEADER_LIMIT:,}")
    return read_at(file, path, 8, length)


def _fields(entry: Any) -> tuple[str | None, tuple[int, ...] | None, tuple[int, int] | None]:
    """Dtype, shape and offsets of a header entry; None for each that is not well formed."""
    if not isinstance(entry, dict):
        return None, None, None
    dtype = entry.get("dtype")
    shape, span = _sizes(entry.get("shape")), _sizes(entry.get("data_offsets"))
    return (
        dtype if isinstance(dtype, str) else None,
        shape if shape is not None and len(shape) <= _MOST_AXES else None,
        (span[0], span[1]) if span is not None and len(span) == 2 and span[0] <= span[1] else None,
    )


def _sizes(value: Any) -> tuple[int, ...] | None:
    """A list of sizes, none of them absurd."""
    if isinstance(value, list) and all(type(item) is int and 0 <= item < 2**62 for item in value):
        return tuple(value)
    return None


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:59]}…"
