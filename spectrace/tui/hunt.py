"""What the reader is looking for: a search with its next match, or the next step of a request.

Runs each for a moment at once, so that keys typed behind it keep their order, and hands the rest to a
worker. Answers with an `Arrival`; moves nothing itself and knows no Textual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from spectrace.format.text import visible
from spectrace.tui.loader import Loader
from spectrace.tui.search import Needle, Search, StepWalk

PATIENCE = 0.04
"""Seconds a search may run before it moves to the background."""
_MOST_STEPS = 10_000
"""Matches that one count may skip."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where to go and what to say."""

    row: int | None
    """None = stay."""
    word: str = ""


class Hunt:
    """At most one search and one walk at a time.

    Args:
        loader: the trace.
        run: takes a task to its end in the background, telling `advanced` now and then.
        stop: stops that.
    """

    def __init__(
        self,
        loader: Loader,
        run: Callable[[Search | StepWalk], None],
        stop: Callable[[], None],
    ) -> None:
        self.search: Search | None = None
        self._walk: StepWalk | None = None
        self._wanted: tuple[int, bool] | None = None
        self._loader = loader
        self._run = run
        self._stop = stop

    def search_for(self, text: str, row: int) -> Arrival | None:
        """Searches from a row on; the first match, None while it is not known."""
        self._stop()
        search = self.search = Search(self._loader, Needle(text, self._loader), row + 1)
        self._walk, self._wanted = None, (1, True)
        _run_for_a_moment(search, lambda: search.count > 0)
        arrival = self._settled(row)
        if not search.is_done:
            self._run(search)
        return arrival

    def next_match(self, row: int, count: int, *, forward: bool) -> Arrival | None:
        """The next or previous match; None while the search has not come there."""
        if self.search is None:
            return Arrival(None, "nothing was searched yet: / searches")
        waiting = self._wanted[0] if self._wanted is not None and self._wanted[1] is forward else 0
        self._wanted = (min(waiting + count, _MOST_STEPS), forward)
        return self._settled(row)

    def walk(self, walk: StepWalk) -> Arrival | None:
        """Looks for a step row by row; None while it is not found."""
        self._stop()
        # A search that was stopped half-way is not gone on with: its thread may still be inside it.
        self._wanted = None
        if self.search is not None and not self.search.is_done:
            self.search = None
        self._walk = walk
        _run_for_a_moment(walk, lambda: False)
        if not walk.is_done:
            self._run(walk)
        return self._arrived()

    def advanced(self, task: Search | StepWalk, row: int) -> Arrival | None:
        """A task in the background came further."""
        if task is self._walk:
            return self._arrived()
        return self._settled(row) if task is self.search else None

    def stop(self) -> bool:
        """Stops what runs; whether anything did. A search that was not finished is forgotten."""
        is_searching = self.search is not None and not self.search.is_done
        was_running = is_searching or self._walk is not None
        self._stop()
        self._walk = self._wanted = None
        if is_searching:
            self.search = None
        return was_running

    def words(self, row: int) -> list[str]:
        """What the status row says of it."""
        return [*self._search_words(row), *self._walk_words()]

    def _settled(self, row: int) -> Arrival | None:
        """The wanted match, as far as it is known."""
        arrival = None
        while self.search is not None and self._wanted is not None:
            count, forward = self._wanted
            found = self.search.next_match(row, forward=forward)
            if found == "unknown":
                break
            self._wanted = (count - 1, forward) if count > 1 and found is not None else None
            if found is not None:
                went_round = found <= row if forward else found >= row
                word = "went round" if went_round and self.search.count > 1 else ""
                arrival, row = Arrival(found, word), found
        return arrival

    def _arrived(self) -> Arrival | None:
        walk = self._walk
        if walk is None or not walk.is_done:
            return None
        self._walk = None
        if walk.found is None:
            return Arrival(None, f"there is no {walk.name}")
        return Arrival(walk.found)

    def _search_words(self, row: int) -> list[str]:
        search = self.search
        if search is None:
            return []
        name = f"/{visible(search.needle.text, limit=24)}"
        if search.is_done:
            count = f"{search.number_of(row):,} of {search.count:,}" if search.count else "no match"
            return [f"{name}: {count}"]
        found = f"{search.number_of(row):,} of ≥ {search.count:,}, " if search.count else ""
        return [f"{name}: {found}scanning {search.share:.0%}, Esc stops"]

    def _walk_words(self) -> list[str]:
        if self._walk is None:
            return []
        return [f"looking for the {self._walk.name}: {self._walk.share:.0%}, Esc stops"]


def _run_for_a_moment(task: Search | StepWalk, is_enough: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE
    while not task.is_done and not is_enough() and monotonic() < deadline:
        task.advance()
