"""Columns: one leaf of a step's fields over many rows, joined and cut. No bytes and no I/O here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spectrace.format.fields import (
    LEAF_BY_PATH,
    Field,
    Leaf,
)

Array = npt.NDArray[Any]


MAX_OBJECTS = 1 << 17
"""Most objects (taps, draft inputs) of one field in one frame."""


class FieldFault(ValueError):
    """A value does not fit its field.

    Args:
        field: name of the field, or ``field.key``.
        expected: what belongs there.
        row: which of the rows given, where known.
    """

    def __init__(self, field: str, expected: str, row: int | None = None) -> None:
        self.field = field
        self.expected = expected
        self.row = row
        super().__init__(f"{field} must be {expected}")


@dataclass(slots=True)
class Column:
    """One leaf over the rows of a frame.

    ``values`` holds only what is there, flat. ``lengths[0]`` has one entry per row that has the
    field, ``lengths[1]`` one per element of those lists. ``present`` [rows] says which rows have the
    field (None: all); ``known`` [leaf slots] which elements hold a value (None: all). For text,
    ``values`` are indices into ``words``.
    """

    leaf: Leaf
    values: Array
    lengths: tuple[Array, ...] = ()
    present: Array | None = None
    known: Array | None = None
    words: tuple[str, ...] = ()


Columns = dict[str, Column]


def per_row(column: Column | None, num_rows: int, missing: int = 0) -> Array:
    """[rows] int64: the field's value, its length where it is a list, ``missing`` where there is none."""
    rows = np.full(num_rows, missing, np.int64)
    if column is not None:
        there = slice(None) if column.present is None else column.present
        rows[there] = column.lengths[0] if column.leaf.depth else column.values
    return rows


def concatenate(parts: Sequence[tuple[int, Columns]]) -> Columns:
    """One set of columns from several, each given with its number of rows."""
    if len(parts) == 1:
        return parts[0][1]
    paths = dict.fromkeys(path for _, columns in parts for path in columns)
    leaves = sorted((LEAF_BY_PATH[path] for path in paths), key=lambda leaf: leaf.number)
    return {leaf.path: _joined(leaf, parts) for leaf in leaves}


def _joined(leaf: Leaf, parts: Sequence[tuple[int, Columns]]) -> Column:
    columns = [_of_part(leaf, num_rows, part) for num_rows, part in parts]
    lengths = tuple(
        np.concatenate([column.lengths[level] for column in columns]) for level in range(leaf.depth)
    )
    values, words = _join_values(columns)
    present = _join_flags([(c.present, rows) for c, (rows, _) in zip(columns, parts)])
    known = _join_flags([(c.known, _num_slots(c, rows)) for c, (rows, _) in zip(columns, parts)])
    return Column(leaf, values, lengths, present, known, words)


def _of_part(leaf: Leaf, num_rows: int, part: Columns) -> Column:
    """The part's column; where the part lacks it, one that says so for every row or element."""
    column = part.get(leaf.path)
    if column is not None:
        return column
    sibling = next((c for c in part.values() if c.leaf.field == leaf.field), None)
    nothing = np.zeros(0, np.int64)
    if sibling is None:
        return Column(leaf, nothing, (nothing,) * leaf.depth, np.zeros(num_rows, bool))
    lengths = sibling.lengths[:1]
    if leaf.depth == 2:
        return Column(leaf, nothing, (*lengths, np.zeros(lengths[0].sum(), np.int64)), sibling.present)
    slots = int(lengths[0].sum()) if leaf.depth else _num_present(sibling, num_rows)
    return Column(leaf, nothing, lengths[: leaf.depth], sibling.present, np.zeros(slots, bool))


def _num_present(column: Column, num_rows: int) -> int:
    return num_rows if column.present is None else int(column.present.sum())


def _num_slots(column: Column, num_rows: int) -> int:
    """Places for a value, known or not."""
    if column.lengths:
        return int(column.lengths[-1].sum())
    return _num_present(column, num_rows)


def _join_flags(parts: Sequence[tuple[Array | None, int]]) -> Array | None:
    if all(flags is None for flags, _ in parts):
        return None
    return np.concatenate([np.ones(n, bool) if flags is None else flags for flags, n in parts])


def join_arrays(parts: Sequence[Array]) -> Array:
    """Arrays one after the other, integers kept exact.

    numpy would make floats of signed and unsigned 64-bit integers together.
    """
    filled = [part for part in parts if part.size] or list(parts[:1])
    joined = np.concatenate(filled)
    if joined.dtype.kind == "f" and all(part.dtype.kind in "iu" for part in filled):
        wide = np.uint64 if all(part.min() >= 0 for part in filled) else np.int64
        joined = np.concatenate([part.astype(wide) for part in filled])
    return joined


def _join_values(columns: Sequence[Column]) -> tuple[Array, tuple[str, ...]]:
    if columns[0].leaf.kind != "str":
        return join_arrays([column.values for column in columns]), ()
    codes: dict[str, int] = {}
    parts = []
    for column in columns:
        table = np.array([codes.setdefault(w, len(codes)) for w in column.words] or [0], np.int64)
        parts.append(table[column.values.astype(np.int64)])
    return np.concatenate(parts), tuple(codes)


def slice_rows(columns: Columns, start: int, stop: int) -> Columns:
    """The columns of rows ``start`` to ``stop``."""
    return {path: _sliced(column, start, stop) for path, column in columns.items()}


def _sliced(column: Column, start: int, stop: int) -> Column:
    present = column.present
    if present is not None:
        start, stop, present = (
            int(present[:start].sum()),
            int(present[:stop].sum()),
            present[start:stop],
        )
    lengths = []
    for level in column.lengths:
        lengths.append(level[start:stop])
        start, stop = int(level[:start].sum()), int(level[:stop].sum())
    known = column.known
    if known is not None:
        start, stop, known = int(known[:start].sum()), int(known[:stop].sum()), known[start:stop]
    return Column(column.leaf, column.values[start:stop], tuple(lengths), present, known, column.words)


def need_alike(field: Field, parts: Sequence[Column]) -> None:
    """Whether the columns of one field belong together.

    Raises:
        FieldFault: they are for different rows, or their lists are of different lengths.
    """
    if field.shape == "pairs" and len(parts) < 2:
        raise FieldFault(field.name, "given with its ids and its logprobs")
    first = parts[0]
    for other in parts[1:]:
        levels = 2 if field.shape == "pairs" else 1
        pairs = zip((first.present, *first.lengths[:levels]), (other.present, *other.lengths[:levels]))
        if not all(a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs):
            raise FieldFault(field.name, "given for the same rows and with the same lengths, key by key")
