"""The Textual app: opens the screen, runs workers, hands keys to the screen on top. Draws nothing."""

from __future__ import annotations

import asyncio
import signal
from threading import Event
from time import monotonic

from textual import events, work
from textual.app import App
from textual.driver import Driver
from textual.worker import get_current_worker

from spectrace.tui.loader import Loader
from spectrace.tui.messages import RequestsCounted, SearchAdvanced, TraceGrew
from spectrace.tui.prepaint import FirstPaint
from spectrace.tui.screens.key_screen import KeyScreen
from spectrace.tui.screens.steps import StepsScreen
from spectrace.tui.search import Search, StepWalk
from spectrace.tui.terminal import Terminal

FOLLOW_INTERVAL = 0.2
"""Seconds between two looks at a growing trace."""
_PROGRESS_INTERVAL = 0.5
"""Seconds between two reports of a search: a number that runs costs a slow line."""


class Viewer(App[None]):
    """Shows one trace.

    Args:
        loader: the trace.
        terminal: how to treat the terminal.
        at: row to begin at.
        follow: follow the trace from the start.
        first_paint: what is on the screen already.
    """

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    TITLE = "spectrace"

    def __init__(
        self,
        loader: Loader,
        terminal: Terminal,
        *,
        at: int | None = None,
        follow: bool = False,
        first_paint: FirstPaint | None = None,
    ) -> None:
        # Before App.__init__: the driver is made there and takes the first paint over.
        self.first_paint = first_paint
        self.is_drawn = False
        """The screen has its lines; before that the first paint stays."""
        # `ansi_color` has to be known at construction: with NO_COLOR Textual else draws greys.
        super().__init__(
            driver_class=_frugal_driver() if terminal.is_frugal else None,
            ansi_color=True if terminal.is_ansi else None,
        )
        if terminal.is_ansi:
            self.theme = "ansi-dark"
        self.animation_level = "none"
        self._loader = loader
        self._at = at
        self._follow = follow
        self._is_frugal = terminal.is_frugal
        self._stop_following = Event()
        self.is_following = False

    def get_default_screen(self) -> StepsScreen:
        """The main screen."""
        return StepsScreen(self._loader, at=self._at, scrolls_by_line=self._is_frugal)

    def on_mount(self) -> None:
        """Ends in order when the terminal goes away or the process is asked to; draws anew after fg."""
        self.app_resume_signal.subscribe(self, lambda _: self.redraw())
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.exit)

    def on_ready(self) -> None:
        """Follows from the start when asked to."""
        if self._follow:
            self.call_next(self.screen.run_action, "follow")

    def on_unmount(self) -> None:
        """Lets the workers end at once."""
        self._stop_following.set()

    async def on_event(self, event: events.Event) -> None:
        """Hands a key to the screen on top and waits until it was acted on; see `KeyScreen`."""
        screen = self.screen if isinstance(event, events.Key) and self._screen_stack else None
        if isinstance(event, events.Key) and isinstance(screen, KeyScreen):
            await screen.take_key(event)
        else:
            await super().on_event(event)

    def redraw(self) -> None:
        """Draws every cell again."""
        if self._driver is not None:
            # Also makes the frugal driver forget what it believes is there.
            self._driver.write("\x1b[m\x1b[2J")
        self.screen.refresh()

    @work(thread=True, exclusive=True, group="count")
    def count_requests(self) -> None:
        """Counts the requests, which in a long trace takes longer than the first paint."""
        self._loader.count_requests()
        self.screen_stack[0].post_message(RequestsCounted())

    # --- searching ---

    @work(thread=True, exclusive=True, group="search")
    def run_search(self, task: Search | StepWalk) -> None:
        """Takes a search to its end in the background."""
        worker = get_current_worker()
        screen = self.screen_stack[0]
        told, had = monotonic(), _found(task)
        while not task.is_done and not worker.is_cancelled:
            task.advance()
            is_first = not had and _found(task)
            if is_first or monotonic() - told >= _PROGRESS_INTERVAL:
                told, had = monotonic(), _found(task)
                screen.post_message(SearchAdvanced(task))
        if not worker.is_cancelled:
            screen.post_message(SearchAdvanced(task))

    def stop_search(self) -> None:
        """Stops the search in the background."""
        self.workers.cancel_group(self, "search")

    # --- following ---

    def follow(self) -> None:
        """Begins to look for new steps."""
        self.is_following = True
        self._stop_following.clear()
        self._look_for_steps()

    def stop_following(self) -> None:
        """Looks no more."""
        self.is_following = False
        self._stop_following.set()

    @work(thread=True, exclusive=True, group="follow")
    def _look_for_steps(self) -> None:
        state = ""
        screen = self.screen_stack[0]
        worker = get_current_worker()
        while not worker.is_cancelled and not self._stop_following.is_set():
            found = self._loader.refresh()
            before, state = state, self._loader.state
            if found or state != before:
                screen.post_message(TraceGrew())
            if state == "closed":
                self.is_following = False
                return
            self._stop_following.wait(FOLLOW_INTERVAL)


def _found(task: Search | StepWalk) -> bool:
    return task.count > 0 if isinstance(task, Search) else task.found is not None


def _frugal_driver() -> type[Driver]:
    from spectrace.tui.frugal import FrugalDriver

    return FrugalDriver
