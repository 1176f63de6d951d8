"""The map from draft to target ids: its two readings, and which of them a table was made for.

A `d2t` table holds offsets (EAGLE ``cnets.py``, speculators ``vocab_mapping.py``, SpecForge
``compact_teacher.py``): target id = draft id + d2t[draft id]. Read directly, target id = d2t[draft id]. Takes
tables, reads no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectrace.format.columns import Array

_FAR = 2**40
"""Beyond any id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A table read in one way."""

    ids: Array
    """[draft vocabulary] target ids."""
    distinct: int
    out_of_range: int
    """Entries below 0 or beyond the target's vocabulary."""
    is_increasing: bool
    in_mask: int | None
    """Entries that t2d holds; None without t2d."""
    equals_mask: bool | None
    """The set of ids is exactly t2d; None without t2d."""

    @property
    def is_sound(self) -> bool:
        """A map: every id once, in range, and exactly t2d where that is known."""
        return self.distinct == len(self.ids) and not self.out_of_range and self.equals_mask is not False

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for evidence."""
        found: dict[str, Any] = {
            "entries": len(self.ids),
            "distinct": self.distinct,
            "out_of_range": self.out_of_range,
            "increasing": self.is_increasing,
        }
        if self.in_mask is not None:
            found |= {"in_mask": self.in_mask, "equals_mask": self.equals_mask}
        return found


def read_offset(d2t: Sequence[int], t2d: Sequence[int] | None, vocab_size: int | None) -> Reading:
    """The table read as offsets.

    >>> reading = read_offset([0, 0, 0, 0, 1, 4, 11, 23], [0, 1, 2, 3, 5, 9, 17, 30], 32)
    >>> reading.distinct, reading.out_of_range, reading.equals_mask
    (8, 0, True)
    """
    table = _ids(d2t)
    return _reading(table + np.arange(len(table)), t2d, vocab_size)


def read_direct(d2t: Sequence[int], t2d: Sequence[int] | None, vocab_size: int | None) -> Reading:
    """The table read as target ids.

    >>> reading = read_direct([0, 0, 0, 0, 1, 4, 11, 23], [0, 1, 2, 3, 5, 9, 17, 30], 32)
    >>> reading.distinct, reading.in_mask, reading.equals_mask
    (5, 5, False)
    """
    return _reading(_ids(d2t), t2d, vocab_size)


def kept_ids(t2d: Sequence[int], vocab_size: int | None) -> Array:
    """The target ids a draft vocabulary holds; a mask over the target's vocabulary is read as one.

    >>> kept_ids([1, 0, 1, 0], 4).tolist(), kept_ids([0, 2], 4).tolist()
    ([0, 2], [0, 2])
    """
    table = _ids(t2d)
    is_mask = vocab_size is not None and len(table) == vocab_size > 2 and table.size and table.max() <= 1
    found: Array = np.flatnonzero(table) if is_mask else np.unique(table)
    return found


def _ids(values: Sequence[int]) -> Array:
    """A table of a header as int64, clipped where no id can be, so that sums of ids do not wrap."""
    try:
        table = np.asarray(values, np.int64)
    except OverflowError:
        table = np.array([min(max(value, -_FAR), _FAR) for value in values], np.int64)
    found: Array = np.clip(table, -_FAR, _FAR)
    return found


def _reading(ids: Array, t2d: Sequence[int] | None, vocab_size: int | None) -> Reading:
    kept = None if t2d is None else kept_ids(t2d, vocab_size)
    distinct = np.unique(ids)
    outside = ids < 0 if vocab_size is None else (ids < 0) | (ids >= vocab_size)
    return Reading(
        ids=ids,
        distinct=len(distinct),
        out_of_range=int(outside.sum()),
        is_increasing=bool((np.diff(ids) > 0).all()),
        in_mask=None if kept is None else int(np.isin(ids, kept).sum()),
        equals_mask=None if kept is None else bool(np.array_equal(distinct, kept)),
    )


def is_ramp(d2t: Sequence[int]) -> bool:
    """Whether the table is 0, 1, 2, ..., a buffer's default that nothing was loaded into."""
    return len(d2t) > 1 and bool(np.array_equal(np.asarray(d2t), np.arange(len(d2t))))
