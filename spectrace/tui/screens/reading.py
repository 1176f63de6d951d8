"""The facts of a page, gathered on a thread: when it opens, when the cursor moves, when the trace grows.

Knows no line and no widget: a screen says what comes of the facts (`show_facts`).
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from textual.timer import Timer

from spectrace.tui.background import Background, Outcome
from spectrace.tui.messages import PageGathered
from spectrace.tui.pages.page import Page
from spectrace.tui.screens.asking import AskingScreen

_PAUSE = 0.5
"""Seconds at least between two readings of a trace that grows."""


class ReadingScreen(AskingScreen):
    """Has the facts of a page.

    Args:
        page: whose facts.
        row: the step under the cursor.
    """

    def __init__(self, page: Page, row: int) -> None:
        super().__init__()
        self.page = page
        self.row = row
        self.facts: tuple[Any] | None = None
        """What was gathered, None before."""
        self.error = ""
        """Why there are none, in one sentence."""
        self.gathering = Background()
        self._again: Timer | None = None
        self._began = self._took = 0.0
        """When the last reading began, and how long it took, seconds."""
        self._total = 0
        """Length of the trace when it began."""

    def show_facts(self) -> None:
        """There are facts, or there is a sentence that says why not."""
        raise NotImplementedError

    @property
    def is_reading(self) -> bool:
        """Nothing is known to show yet, or something newer is on its way."""
        return self.gathering.is_running or (self.facts is None and not self.error)

    def gather(self) -> None:
        """Asks for the facts, on a thread."""
        # Looked up here: on the thread, the screen may have been left and know no app any more.
        row, viewer, loader, page = self.row, self.viewer, self.viewer.loader, self.page
        self._began, self._total = monotonic(), loader.total
        total, known = viewer.gathered.get(page.id, (-1, None))
        if total == loader.total:
            self.post_message(PageGathered(row, Outcome(known)))
            return
        self.gathering.start(
            lambda stop: page.gather(loader.stoppable(stop), row),
            lambda outcome: viewer.tell(self, PageGathered(row, outcome)),
        )

    def on_page_gathered(self, message: PageGathered) -> None:
        """The facts are there, or a sentence says why not."""
        if message.row != self.row and self.page.follows_cursor:
            return
        self.error = message.outcome.error
        self.facts = None if self.error else (message.outcome.value,)
        if self.facts is not None and not self.page.follows_cursor:
            self.viewer.gathered[self.page.id] = (self._total, self.facts[0])
        self._took = monotonic() - self._began
        self.show_facts()

    def read_again(self) -> None:
        """The trace grew: gathers anew, at most twice a second and no more than half of the time."""
        if self.facts is not None and self._again is None:
            self._again = self.set_timer(max(_PAUSE, self._took), self._gather_again)

    def _gather_again(self) -> None:
        self._again = None
        if self.gathering.is_running:
            self.read_again()
        else:
            self.gather()
