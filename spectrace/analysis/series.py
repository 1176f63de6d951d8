"""Acceptance over the run: sums of neighbouring steps, from the index where the trace is long.

Sums only, so that any number of cells can be made of them; a rate is one call to `acceptance` away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spectrace.format.columns import Array, per_row
from spectrace.format.counts import REJECTED_COLUMNS, Counts, is_summed, rejected_rows
from spectrace.format.fields import FIELD_BY_NAME

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

EXACT_ROWS = 20_000
"""Up to here every step is looked at; beyond, the groups of the index."""
_FIELDS = ("proposal_ids", "num_accepted")
_SUMS = ("steps", "proposals", "drafted", "accepted", "rejected")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Sums of pieces of a run, in order."""

    row: Array
    """[pieces] number of the first step of each."""
    total: int
    """Steps of the whole trace, damaged ones included."""
    steps: Array
    proposals: Array
    drafted: Array
    accepted: Array
    rejected: Array

    def __len__(self) -> int:
        return len(self.row)


def series_of(trace: Trace) -> Series:
    """The run in its finest pieces: steps of a short trace, groups of the index of a long one."""
    total = len(trace)
    if total > EXACT_ROWS:
        groups = trace.groups
        sums = {name: getattr(groups, name).astype(np.int64) for name in _SUMS if name != "steps"}
        return Series(
            row=groups.row.astype(np.int64), total=total, steps=groups.rows.astype(np.int64), **sums
        )
    pieces = list(_rows(trace))
    joined = [np.concatenate(column) for column in zip(*pieces)] if pieces else [np.zeros(0, np.int64)] * 6
    return Series(row=joined[0], total=total, **dict(zip(_SUMS, joined[1:])))


def _rows(trace: Trace) -> Iterator[tuple[Array, ...]]:
    """First row, then the sums in the order of `_SUMS`, of every step of each chunk."""
    numbers = {FIELD_BY_NAME[name].leaves[0].number for name in _FIELDS}.union(REJECTED_COLUMNS)
    base = 0
    for part in trace.parts:
        for chunk in part.chunks():
            size = chunk.num_rows
            columns = chunk.columns(*numbers)
            drafted = per_row(columns.get("proposal_ids"), size)
            accepted = np.clip(per_row(columns.get("num_accepted"), size), 0, drafted)
            rejected = rejected_rows(columns, size).astype(np.int64)
            row = np.arange(size) + base + chunk.first_row
            proposed = ((drafted > 0) & ~is_summed(columns, size)).astype(np.int64)
            yield row, np.ones(size, np.int64), proposed, drafted, accepted, rejected
        base += part.num_rows


def in_cells(series: Series, cells: int) -> tuple[Counts, ...]:
    """The run in equal parts, each the sum of the pieces that begin in it.

    Args:
        series: of a run.
        cells: number of parts; fewer come back where there are fewer pieces.

    Returns:
        Sums that add up to those of the run; other tallies are empty.

    >>> one = np.ones(4, np.int64)
    >>> run = Series(row=np.arange(4), total=4, steps=one, proposals=one, drafted=4 * one,
    ...              accepted=np.array([4, 2, 0, 1]), rejected=one)
    >>> [cell.accepted for cell in in_cells(run, 2)]
    [6, 1]
    """
    cells = min(max(cells, 0), len(series))
    if not cells:
        return ()
    at = np.clip(series.row * cells // max(series.total, 1), 0, cells - 1)
    sums = {name: np.bincount(at, getattr(series, name), cells).astype(np.int64) for name in _SUMS}
    return tuple(
        Counts(
            steps=int(sums["steps"][cell]),
            proposals=int(sums["proposals"][cell]),
            drafted=int(sums["drafted"][cell]),
            accepted=int(sums["accepted"][cell]),
            rejected=int(sums["rejected"][cell]),
        )
        for cell in range(cells)
    )
