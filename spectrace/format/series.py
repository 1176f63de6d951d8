"""Columns of a whole trace as arrays, for analysis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spectrace.format.columns import Array, Column, Columns, join_arrays
from spectrace.format.fields import Leaf


@dataclass(frozen=True, slots=True)
class Ragged:
    """A column of lists: the values of row i are ``values[offsets[i]:offsets[i + 1]]``."""

    values: Array
    """All values, flat; masked where an element is unknown. A column of lists of lists (top
    alternatives, projections) is flat as well: ``inner`` tells the lists apart."""
    offsets: Array
    """[rows + 1] offsets into ``values``, or into ``inner`` where that is given."""
    present: Array
    """[rows] bool: the row has the field at all."""
    inner: Array | None = None
    """[lists + 1] offsets of inner lists into ``values``."""

    def __len__(self) -> int:
        return len(self.present)

    def __getitem__(self, row: int) -> Array:
        start, stop = int(self.offsets[row]), int(self.offsets[row + 1])
        if self.inner is not None:
            start, stop = int(self.inner[start]), int(self.inner[stop])
        values: Array = self.values[start:stop]
        return values


def series(leaf: Leaf, chunks: Sequence[tuple[int, Columns]]) -> Array | Ragged:
    """One column over all chunks, each given with its number of rows."""
    columns = [(rows, found.get(leaf.path)) for rows, found in chunks]
    values = _joined([_values(column) for _, column in columns if column is not None], leaf)
    present = _joined_flags([_present(rows, column) for rows, column in columns])
    if leaf.depth == 0:
        if present.all():
            return values
        spread = np.zeros(len(present), values.dtype if len(values) else _empty(leaf).dtype)
        if leaf.kind == "str":
            spread = np.full(len(present), "", object)
        mask = ~present
        spread[present] = np.ma.getdata(values)
        mask[present] = np.ma.getmaskarray(values)
        return np.ma.MaskedArray(spread, mask)
    there = [column for _, column in columns if column is not None]
    lengths = np.zeros(len(present), np.int64)
    lengths[present] = _joined([column.lengths[0] for column in there], leaf)
    inner = None
    if leaf.depth == 2:
        inner = _offsets(_joined([column.lengths[1] for column in there], leaf))
    return Ragged(values, _offsets(lengths), present, inner)


def join_series(parts: Sequence[Array | Ragged]) -> Array | Ragged:
    """The same column of several files, one after the other."""
    if len(parts) == 1:
        return parts[0]
    ragged = [part for part in parts if isinstance(part, Ragged)]
    if not ragged:
        joined = _concatenated([np.ma.asarray(part) for part in parts])
        return joined if np.ma.is_masked(joined) else np.asarray(joined)
    return Ragged(
        _concatenated([part.values for part in ragged]),
        _offsets(np.concatenate([np.diff(part.offsets) for part in ragged])),
        np.concatenate([part.present for part in ragged]),
        None
        if ragged[0].inner is None
        else _offsets(np.concatenate([np.diff(p.inner) for p in ragged if p.inner is not None])),
    )


def named(column: Array, name_of: Callable[[int | None], str]) -> Array:
    """Request numbers as request names."""
    numbers, at = np.unique(np.ma.filled(column.astype(np.int64), -1), return_inverse=True)
    table = np.array([name_of(int(n) if n >= 0 else None) for n in numbers], object)
    named: Array = table[at]
    return named


def _values(column: Column) -> Array:
    """The column's values with a place for every element."""
    values = column.values
    if column.leaf.kind == "str":
        values = np.array([*column.words, ""], object)[values.astype(np.int64)]
    if column.known is None:
        return values
    spread = np.zeros(len(column.known), values.dtype)
    spread[column.known] = values
    return np.ma.MaskedArray(spread, ~column.known)


def _present(num_rows: int, column: Column | None) -> Array:
    if column is None:
        return np.zeros(num_rows, bool)
    return np.ones(num_rows, bool) if column.present is None else column.present


def _joined(parts: Sequence[Array], leaf: Leaf) -> Array:
    if not parts:
        return _empty(leaf)
    return _concatenated(parts)


def _concatenated(parts: Sequence[Array]) -> Array:
    if np.result_type(*parts).kind == "f" and all(part.dtype.kind in "iu" for part in parts):
        # Unsigned 64-bit beside signed values would become floats and lose digits.
        parts = [part.astype(np.int64) for part in parts]
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        return np.ma.concatenate(parts)  # type: ignore[no-untyped-call, no-any-return]
    return join_arrays(parts)


def _joined_flags(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0, bool)


def _empty(leaf: Leaf) -> Array:
    kind = {"int": np.int64, "float": np.float64, "str": object}[leaf.kind]
    return np.zeros(0, kind)


def _offsets(lengths: Array) -> Array:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
