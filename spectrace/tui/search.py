"""Searching a trace: which steps hold a token text, an id or a request, found piece by piece.

`Search` is driven from outside (`advance`), by the screen for the first moments and by a worker after
that, so that nothing here waits or knows a thread. Works on columns of ids; no step is decoded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from spectrace.format.columns import Array, Column
from spectrace.format.fields import LEAF_BY_PATH
from spectrace.format.records import Step
from spectrace.tui.loader import Loader, Piece

_SEARCHED = ("proposal_ids", "emitted_ids")
_NUMBERS = tuple(LEAF_BY_PATH[path].number for path in ("request", *_SEARCHED))
_MOST_IDS = 1 << 22
"""Ids from here on have no text: no vocabulary is that large."""


class Needle:
    """What is looked for: a text within a token or a request name, or a token id.

    Lower case finds upper case too, as in less; a number finds the id, and texts with these digits.
    """

    def __init__(self, text: str, loader: Loader) -> None:
        self.text = text
        self._loader = loader
        self._fold = text == text.lower()
        self._id = int(text) if text.isdecimal() and len(text) < 19 else None
        self._known = np.zeros(0, np.bool_)
        self._matches = np.zeros(0, np.bool_)
        self._requests: dict[str, bool] = {}

    def rows_in(self, piece: Piece) -> Array:
        """Numbers of the steps that match, ascending."""
        found = np.zeros(piece.chunk.num_rows, np.bool_)
        columns = piece.chunk.columns(*_NUMBERS)
        for path in _SEARCHED:
            if path in columns:
                self._mark(columns[path], found)
        if "request" in columns:
            self._mark_requests(columns["request"], piece, found)
        return found.nonzero()[0] + piece.row

    def _mark_requests(self, column: Column, piece: Piece, found: Array) -> None:
        for number in np.unique(column.values).tolist():
            name = self._loader.request_name(piece, number)
            if name not in self._requests:
                self._requests[name] = self._is_in(name)
            if self._requests[name]:
                rows = np.arange(len(found)) if column.present is None else column.present.nonzero()[0]
                found[rows[column.values == number]] = True

    def _mark(self, column: Column, found: Array) -> None:
        hits = self._matching(column.values)
        if not hits.any():
            return
        rows = np.arange(len(found)) if column.present is None else column.present.nonzero()[0]
        slots = np.repeat(rows, column.lengths[0])
        if column.known is not None:
            slots = slots[column.known]
        found[slots[hits]] = True

    def _matching(self, ids: Array) -> Array:
        """Which of the ids match, each text looked at once."""
        if not len(ids):
            return np.zeros(0, np.bool_)
        sound = (ids >= 0) & (ids < _MOST_IDS)
        safe = np.where(sound, ids, 0).astype(np.int64)
        self._grow(int(safe.max()) + 1)
        for new in set(safe[~self._known[safe]].tolist()):
            self._known[new] = True
            text = self._loader.raw_token(new)
            self._matches[new] = new == self._id or (text is not None and self._is_in(text))
        matching: Array = self._matches[safe] & sound
        return matching if self._id is None else matching | (ids == self._id)

    def _grow(self, size: int) -> None:
        if size > len(self._known):
            more = np.zeros(max(size, 2 * len(self._known)) - len(self._known), np.bool_)
            self._known = np.concatenate([self._known, more])
            self._matches = np.concatenate([self._matches, more])

    def _is_in(self, text: str) -> bool:
        return self.text in (text.lower() if self._fold else text)


class Search:
    """One search over all steps, from the cursor to the end and then from the start to the cursor.

    Args:
        loader: the trace.
        needle: what is looked for.
        origin: row to begin at.
    """

    def __init__(self, loader: Loader, needle: Needle, origin: int) -> None:
        self.needle = needle
        self.total = loader.total
        self.origin = max(0, min(origin, self.total))
        self.is_done = self.total == 0
        self._ahead: list[int] = []
        """Matches from the origin on."""
        self._around: list[int] = []
        """Matches before the origin, found after coming round."""
        self._ahead_end = self.origin
        self._around_end = 0
        self._scan = self._scanned(loader)

    @property
    def count(self) -> int:
        """Matches found so far."""
        return len(self._ahead) + len(self._around)

    @property
    def share(self) -> float:
        """Part of the trace that was looked at, 0..1."""
        seen = self._ahead_end - self.origin + self._around_end
        return min(1.0, seen / self.total) if self.total else 1.0

    def advance(self) -> None:
        """Looks at one more chunk."""
        if next(self._scan, "end") == "end":
            self.is_done = True

    def number_of(self, row: int) -> int:
        """How many of the matches found lie at or before a row."""
        return bisect_right(self._around, row) + bisect_right(self._ahead, row)

    def next_match(self, row: int, *, forward: bool = True) -> int | Literal["unknown"] | None:
        """The match after (or before) a row, going round at the ends.

        Returns:
            None when there is no match at all, "unknown" while the steps in question are unread.
        """
        pieces = self._pieces(row, forward=forward)
        for matches, is_read in pieces:
            if matches:
                return matches[0] if forward else matches[-1]
            if not is_read:
                return "unknown"
        return None

    def _pieces(self, row: int, *, forward: bool) -> list[tuple[Sequence[int], bool]]:
        """Matches in the order in which they are met from a row, and whether each piece was read whole.

        Backward, the last match of a piece is not known before all of it was read.
        """
        ahead_read = self._ahead_end >= self.total
        around_read = self._around_end >= self.origin
        is_ahead = row >= self.origin - 1 if forward else row > self.origin
        here, is_here_read = (self._ahead, ahead_read) if is_ahead else (self._around, around_read)
        there, is_there_read = (self._around, around_read) if is_ahead else (self._ahead, ahead_read)
        if forward:
            cut = bisect_right(here, row)
            return [(here[cut:], is_here_read), (there, is_there_read), (here[:cut], True)]
        cut = bisect_left(here, row)
        is_behind_read = (self._ahead_end if is_ahead else self._around_end) >= row
        pieces = [(here[:cut], is_behind_read), (there, is_there_read), (here[cut:], is_here_read)]
        return [(matches if is_read else (), is_read) for matches, is_read in pieces]

    def _scanned(self, loader: Loader) -> Iterator[None]:
        for piece in loader.chunks(self.origin):
            rows = self.needle.rows_in(piece)
            self._ahead += rows[(rows >= self.origin) & (rows < self.total)].tolist()
            self._ahead_end = min(self.total, piece.row + piece.chunk.num_rows)
            yield
        self._ahead_end = self.total
        for piece in loader.chunks(0):
            if piece.row >= self.origin:
                break
            rows = self.needle.rows_in(piece)
            self._around += rows[rows < self.origin].tolist()
            self._around_end = min(self.origin, piece.row + piece.chunk.num_rows)
            yield
        self._around_end = self.origin


class StepWalk:
    """Looks for the nearest step that fits, row by row in one direction.

    Args:
        loader: the trace.
        fits: told each whole step.
        start: first row to look at.
        forward: direction.
        name: what is looked for, in words.
    """

    def __init__(
        self, loader: Loader, fits: Callable[[Step], bool], start: int, *, forward: bool, name: str
    ) -> None:
        self.name = name
        self.found: int | None = None
        self.is_done = False
        self._loader = loader
        self._fits = fits
        self._row = start
        self._pace = 1 if forward else -1

    @property
    def share(self) -> float:
        """Part of the way to the end of the trace, 0..1."""
        total = max(self._loader.total, 1)
        return self._row / total if self._pace > 0 else 1 - self._row / total

    def advance(self, rows: int = 64) -> None:
        """Looks at some more steps."""
        for _ in range(rows):
            if not 0 <= self._row < self._loader.total:
                self.is_done = True
                return
            step = self._loader.step(self._row)
            if step is not None and self._fits(step):
                self.found = self._row
                self.is_done = True
                return
            self._row += self._pace
