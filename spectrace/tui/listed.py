"""Which steps the list shows: all of them, or those that a filter keeps.

A filter is found piece by piece, driven from outside as a search is, and goes on when the trace grows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np

from spectrace.format.columns import Array
from spectrace.tui.loader import Loader, Piece
from spectrace.tui.needles import Needle

_MOST_FILTERS = 16
"""Filters that can be undone."""


class Filter:
    """The steps that a needle matches, from the first on.

    Args:
        loader: the trace.
        needle: what is kept.
    """

    def __init__(self, loader: Loader, needle: Needle) -> None:
        self.needle = needle
        self.rows = array("q")
        """Numbers of the steps kept so far, ascending."""
        self.end = 0
        """Steps looked at so far."""
        self.is_stopped = False
        self._loader = loader
        self._pieces: Iterator[list[Piece]] | None = None
        self._goal = 0

    @property
    def is_done(self) -> bool:
        """Every step was looked at, or the reader stopped it."""
        return self.is_stopped or self.end >= self._loader.total

    @property
    def has_found(self) -> bool:
        """There is a step to show."""
        return len(self.rows) > 0

    @property
    def share(self) -> float:
        """Part of the trace that was looked at, 0..1."""
        return min(1.0, self.end / self._loader.total) if self._loader.total else 1.0

    def advance(self) -> None:
        """Looks at some more chunks."""
        if self._pieces is None:
            self._goal = self._loader.total
            self._pieces = self._loader.chunks_together(self.end)
        pieces = next(self._pieces, None)
        if pieces is None or pieces[0].row >= self._goal:
            self.end, self._pieces = self._goal, None
            return
        rows = self.needle.rows_in(pieces)
        add_rows(self.rows, rows[(rows >= self.end) & (rows < self._goal)])
        self.end = min(self._goal, pieces[-1].row + pieces[-1].chunk.num_rows)


def add_rows(rows: array[int], more: Array) -> None:
    """Adds numbers to an array of eight bytes each."""
    rows.frombytes(more.astype(np.int64).tobytes())


class Listed:
    """The steps in the list, by their place in it.

    Args:
        loader: the trace.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._filters: list[Filter | None] = [None]

    @property
    def filter(self) -> Filter | None:
        """What is kept, None = every step."""
        return self._filters[-1]

    def put(self, kept: Filter | None) -> None:
        """Lists something else; `undo` brings back what was listed before."""
        if self.filter is not None and not self.filter.is_done:
            self.undo()
        if kept is not self.filter:
            self._filters = [*self._filters[-_MOST_FILTERS:], kept]

    def undo(self) -> bool:
        """Lists what was listed before; whether there was anything."""
        if len(self._filters) == 1:
            return False
        last = self._filters.pop()
        if last is not None:
            last.is_stopped = True
        return True

    def __len__(self) -> int:
        return self._loader.total if self.filter is None else len(self.filter.rows)

    def row_at(self, index: int) -> int:
        """Number of the step at a place of the list, the nearest one for a place outside; 0 of none."""
        index = max(0, min(index, len(self) - 1))
        return self.filter.rows[index] if self.filter is not None and self.filter.rows else index

    def index_of(self, row: int) -> int:
        """Place of a step, or of the nearest one that is listed after it, else of the last."""
        index = row if self.filter is None else bisect_left(self.filter.rows, row)
        return max(0, min(index, len(self) - 1))

    def holds(self, row: int) -> bool:
        """Whether a step is listed."""
        return len(self) > 0 and self.row_at(self.index_of(row)) == row

    def first_index(self, row: int, *, forward: bool) -> int:
        """Place of the first listed step at or after a row (or at or before it); may lie outside."""
        if self.filter is None:
            return row
        if forward:
            return bisect_left(self.filter.rows, row)
        return bisect_right(self.filter.rows, row) - 1
