"""What the reader is looking for: a search with its next match, the nearest step that fits, a filter.

Runs each for a moment at once, so that keys typed behind it keep their order, and hands the rest to a
worker. Answers with an `Arrival`; moves nothing itself and knows no Textual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from spectrace.errors import UsageError
from spectrace.format.text import visible
from spectrace.tui.listed import Filter, Listed
from spectrace.tui.loader import Loader
from spectrace.tui.needles import AllBut, ExpressionNeedle, Needle, Within, needle_for
from spectrace.tui.search import Search, StepWalk, Task

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
    """At most one search, one walk and one filter at a time.

    Args:
        loader: the trace.
        listed: the steps that are listed; a filter is put there.
        run: takes a task to its end in the background, telling `advanced` now and then.
        stop: stops that.
    """

    def __init__(
        self,
        loader: Loader,
        listed: Listed,
        run: Callable[[Task], None],
        stop: Callable[[], None],
    ) -> None:
        self.search: Search | None = None
        self._needle: Needle | None = None
        self._walk: StepWalk | None = None
        self._wanted: tuple[int, bool] | None = None
        self._filtering: Filter | None = None
        """The filter that a worker is at."""
        self._loader = loader
        self._listed = listed
        self._run = run
        self._stop_search = stop

    # --- filter ---

    def filter_by(self, text: str) -> str:
        """Lists only what a text or an expression matches, `!` before it inverts; "" lists all.

        Returns:
            What is wrong with the text, "" for nothing.
        """
        is_inverted, text = text.startswith("!"), text.removeprefix("!").strip()
        try:
            needle = needle_for(text, self._loader) if text else None
        except UsageError as error:
            return str(error)
        if needle is not None and is_inverted:
            needle = AllBut(needle)
        self._listed.put(None if needle is None else Filter(self._loader, needle))
        return ""

    def relist(self, row: int) -> None:
        """The list is another one: finds what is in it, and searches in it again."""
        self.find_listed()
        self._stop_search()
        self._walk = self._wanted = None
        if self._needle is not None and self.search is not None:
            self._start(self._needle, row)

    def find_listed(self) -> None:
        """Goes on with the filter, when there is one and it has steps to look at."""
        kept = self._listed.filter
        if kept is not None and not kept.is_done and kept is not self._filtering:
            _run_for_a_moment(kept, lambda: False)
            if not kept.is_done:
                self._filtering = kept
                self._run(kept)

    # --- search ---

    def search_for(self, text: str, row: int) -> Arrival | None:
        """Searches from a row on; the first match, None while it is not known."""
        try:
            return self.search_needle(needle_for(text, self._loader), row)
        except UsageError as error:
            return Arrival(None, str(error))

    def search_needle(self, needle: Needle, row: int) -> Arrival | None:
        """Searches from a row on; the first match, None while it is not known."""
        self._stop_search()
        self._walk, self._needle = None, needle
        self._start(needle, row)
        self._wanted = (1, True)
        return self._settled(row)

    def _start(self, needle: Needle, row: int) -> None:
        kept = self._listed.filter
        among = needle if kept is None else Within(needle, kept.needle)
        search = self.search = Search(self._loader, among, row + 1)
        self._wanted = None
        _run_for_a_moment(search, lambda: search.has_found)
        if not search.is_done:
            self._run(search)

    def next_match(self, row: int, count: int, *, forward: bool) -> Arrival | None:
        """The next or previous match; None while the search has not come there."""
        if self.search is None:
            return Arrival(None, "nothing was searched yet: / searches")
        waiting = self._wanted[0] if self._wanted is not None and self._wanted[1] is forward else 0
        self._wanted = (min(waiting + count, _MOST_STEPS), forward)
        return self._settled(row)

    def walk(self, walk: StepWalk) -> Arrival | None:
        """Looks for a step row by row; None while it is not found."""
        self._stop_search()
        # A search that was stopped half-way is not gone on with: its thread may still be inside it.
        self._wanted = None
        if self.search is not None and not self.search.is_done:
            self.search = None
        self._walk = walk
        _run_for_a_moment(walk, lambda: False)
        if not walk.is_done:
            self._run(walk)
        return self._arrived()

    # --- what runs in the background ---

    def advanced(self, task: Task, row: int) -> Arrival | None:
        """A task in the background came further."""
        if task is self._filtering:
            if task.is_done:
                self._filtering = None
                self.find_listed()  # The trace may have grown since the last piece.
            return None
        if task is self._walk:
            return self._arrived()
        return self._settled(row) if task is self.search else None

    def stop(self) -> bool:
        """Stops what runs; whether anything did. A search that was not finished is forgotten."""
        is_searching = self.search is not None and not self.search.is_done
        kept = self._listed.filter
        is_filtering = kept is not None and not kept.is_done
        was_running = is_searching or is_filtering or self._walk is not None
        self._stop_search()
        self._walk = self._wanted = None
        if kept is not None and is_filtering:
            kept.is_stopped = True
        if is_searching:
            self.search = None
        return was_running

    def stop_waiting(self) -> None:
        """The reader went elsewhere: what is found from now on is counted and leads nowhere."""
        self._wanted = None
        if self._walk is not None:
            self._stop_search()
            self._walk = None

    def words(self, row: int) -> list[str]:
        """What the status row says of filter and search."""
        return [*self._filter_words(row), *self._search_words(row)]

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

    def _filter_words(self, row: int) -> list[str]:
        kept = self._listed.filter
        if kept is None:
            return []
        name = f"&{visible(kept.needle.text, limit=24)}"
        place = (
            f"{self._listed.index_of(row) + 1:,} of {len(kept.rows):,}"
            if kept.rows
            else _nothing(kept.needle, "no step")
        )
        if kept.is_stopped:
            return [f"{name}: {place} in the first {kept.end:,}, stopped"]
        return [
            f"{name}: {place}" if kept.is_done else f"{name}: {place}, scanning {kept.share:.0%}, Esc stops"
        ]

    def _search_words(self, row: int) -> list[str]:
        search = self.search
        if search is None:
            return []
        name = f"/{visible(search.needle.text, limit=24)}"
        if search.is_done:
            count = (
                f"{search.number_of(row):,} of {search.count:,}"
                if search.count
                else _nothing(search.needle, "no match")
            )
            return [f"{name}: {count}"]
        found = f"{search.number_of(row):,} of ≥ {search.count:,}, " if search.count else ""
        return [f"{name}: {found}scanning {search.share:.0%}, Esc stops"]

    def walk_words(self) -> list[str]:
        """What is being looked for."""
        if self._walk is None:
            return []
        return [f"looking for the {self._walk.name}: {self._walk.share:.0%}, Esc stops"]


def _nothing(needle: Needle, words: str) -> str:
    """What is said of a needle that matches nothing: why, where that is known."""
    needle = needle.wanted if isinstance(needle, Within) else needle
    missing = needle.missing_words() if isinstance(needle, ExpressionNeedle) else ""
    return missing or words


def _run_for_a_moment(task: Task, is_enough: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE
    while not task.is_done and not is_enough() and monotonic() < deadline:
        task.advance()
