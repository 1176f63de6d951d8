"""Searching a trace piece by piece: every step that a needle matches, or the nearest step that fits.

Driven from outside (`advance`), by the screen for the first moments and by a worker after that, so that
nothing here waits or knows a thread.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol

from spectrace.format.records import Step
from spectrace.tui.listed import Listed, add_rows
from spectrace.tui.loader import Loader
from spectrace.tui.needles import Needle


class Task(Protocol):
    """Something that is done piece by piece."""

    @property
    def is_done(self) -> bool:
        """There is nothing left to do."""

    @property
    def has_found(self) -> bool:
        """There is something to show."""

    def advance(self) -> None:
        """Does the next piece."""


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
        self._ahead = array("q")
        """Matches from the origin on."""
        self._around = array("q")
        """Matches before the origin, found after coming round."""
        self._ahead_end = self.origin
        self._around_end = 0
        self._scan = self._scanned(loader)

    @property
    def count(self) -> int:
        """Matches found so far."""
        return len(self._ahead) + len(self._around)

    @property
    def has_found(self) -> bool:
        """There is a match."""
        return self.count > 0

    @property
    def share(self) -> float:
        """Part of the trace that was looked at, 0..1."""
        seen = self._ahead_end - self.origin + self._around_end
        return min(1.0, seen / self.total) if self.total else 1.0

    def advance(self) -> None:
        """Looks at some more chunks."""
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
        for pieces in loader.chunks_together(self.origin):
            rows = self.needle.rows_in(pieces)
            add_rows(self._ahead, rows[(rows >= self.origin) & (rows < self.total)])
            self._ahead_end = min(self.total, pieces[-1].row + pieces[-1].chunk.num_rows)
            yield
        self._ahead_end = self.total
        for pieces in loader.chunks_together(0):
            if pieces[0].row >= self.origin:
                break
            rows = self.needle.rows_in(pieces)
            add_rows(self._around, rows[rows < self.origin])
            self._around_end = min(self.origin, pieces[-1].row + pieces[-1].chunk.num_rows)
            yield
        self._around_end = self.origin


class StepWalk:
    """Looks for the nearest step that fits, one listed step after the other in one direction.

    Args:
        loader: the trace.
        listed: the steps to look at.
        fits: told each whole step.
        start: first row to look at.
        forward: direction.
        name: what is looked for, in words.
        count: how many of them to go to; the last one there is, when there are fewer.
        is_last: told each step that fits, whether none behind it does.
    """

    def __init__(
        self,
        loader: Loader,
        listed: Listed,
        fits: Callable[[Step], bool],
        start: int,
        *,
        forward: bool,
        name: str,
        count: int = 1,
        is_last: Callable[[Step], bool] = lambda step: False,
    ) -> None:
        self.name = name
        self._left = count
        self._is_last = is_last
        self.found: int | None = None
        self.is_done = False
        self._loader = loader
        self._listed = listed
        self._fits = fits
        self._at = listed.first_index(start, forward=forward)
        self._pace = 1 if forward else -1

    @property
    def has_found(self) -> bool:
        """The step is known."""
        return self.is_done and self.found is not None

    @property
    def share(self) -> float:
        """Part of the way to the end of the list, 0..1."""
        total = max(len(self._listed), 1)
        return self._at / total if self._pace > 0 else 1 - self._at / total

    def advance(self, rows: int = 64) -> None:
        """Looks at some more steps."""
        for _ in range(rows):
            if not 0 <= self._at < len(self._listed):
                self.is_done = True
                return
            row = self._listed.row_at(self._at)
            step = self._loader.step(row)
            if step is not None and self._fits(step):
                self.found = row
                self._left -= 1
                if self._left <= 0 or self._is_last(step):
                    self.is_done = True
                    return
            self._at += self._pace
