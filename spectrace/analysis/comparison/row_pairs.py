"""Which step of B stands where a step of A does, and what differs there: compact arrays for a viewer.

Made once; answers without reading a trace again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spectrace.analysis.comparison.rows import POSITION_BITS, Rows
from spectrace.format.columns import Array

PROPOSAL, TARGET_PICK, DECISION, EMITTED, INPUT = 1, 2, 4, 8, 64
"""What differs in a step: bits of `RowPairs.differs`."""
BEHIND_FORK = 16
"""The step begins behind the first token in which the texts differ: nothing of it was compared."""
SAME_START = 32
"""Both steps begin at the same committed length; otherwise B's began earlier and goes beyond it."""

_DIFFERENCES = PROPOSAL | TARGET_PICK | DECISION | EMITTED | INPUT


@dataclass(frozen=True, slots=True)
class RowPairs:
    """Steps of A and B that stand at the same place of the same request; numbers as `Trace.steps` counts."""

    b_of_a: Array
    """[steps of A] number of B's step that begins where A's does, or else that committed the token at which
    A's begins; -1 where there is none. Behind a fork the texts differ, and only the positions agree."""
    differs: Array
    """[steps of A] bits: PROPOSAL, TARGET_PICK, DECISION, EMITTED, INPUT, BEHIND_FORK, SAME_START."""

    def row_of_b(self, row: int) -> int | None:
        """The step of B for a step of A; None where there is none."""
        if not 0 <= row < len(self.b_of_a):
            return None
        found = int(self.b_of_a[row])
        return found if found >= 0 else None

    def next_difference(self, row: int, *, forward: bool = True) -> int | None:
        """The nearest step of A behind (or before) ``row`` in which something differs."""
        rows = np.flatnonzero(self.differs & _DIFFERENCES)
        if forward:
            at = int(rows.searchsorted(row, "right"))
            return int(rows[at]) if at < len(rows) else None
        at = int(rows.searchsorted(row, "left")) - 1
        return int(rows[at]) if at >= 0 else None


def pair_rows(a: Rows, b: Rows, num_steps: int, marks: Array) -> RowPairs:
    """The arrays for a viewer.

    Args:
        a: rows of A.
        b: rows of B.
        num_steps: steps of A, those included that are not compared.
        marks: [rows of A] bits of `RowPairs.differs` but SAME_START.
    """
    beside, is_same = standing_beside(a, b)
    found = beside >= 0
    b_of_a = np.full(num_steps, -1, np.int32 if _fits(b.numbers) else np.int64)
    b_of_a[a.numbers[found]] = b.numbers[beside[found]]
    differs = np.zeros(num_steps, np.uint8)
    differs[a.numbers] = marks | np.where(is_same, SAME_START, 0).astype(np.uint8)
    return RowPairs(b_of_a, differs)


def standing_beside(a: Rows, b: Rows) -> tuple[Array, Array]:
    """[rows of A] the row of B at the same place, -1 for none; and whether both begin there.

    Of several rows of B that begin at one place, the last that got on from there.
    """
    if not len(a.keys) or not len(b.keys):
        return np.full(len(a.keys), -1, np.int64), np.zeros(len(a.keys), bool)
    at = np.searchsorted(b.keys, a.keys, "right") - 1
    beside = np.maximum(at, 0)
    is_same = (at >= 0) & (b.keys[beside] == a.keys)
    goes_on = b.keys[beside] + np.maximum(b.emitted[beside], 1)
    is_inside = (b.keys[beside] >> POSITION_BITS == a.keys >> POSITION_BITS) & (a.keys < goes_on)
    return np.where((at >= 0) & (is_same | is_inside), beside, -1), is_same


def _fits(numbers: Array) -> bool:
    return not len(numbers) or int(numbers.max()) < 2**31
