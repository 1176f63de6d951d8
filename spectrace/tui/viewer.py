"""The Textual app: opens the screen, runs workers, hands keys to the screen on top. Draws nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, cast

from rich.console import RenderableType
from rich.traceback import Traceback
from textual import events, work
from textual.app import App
from textual.message import Message
from textual.worker import get_current_worker

from spectrace.format.text import visible
from spectrace.tui.background import Background, Outcome
from spectrace.tui.drivers import driver_class
from spectrace.tui.ending import Ending
from spectrace.tui.fault import fault_lines
from spectrace.tui.findings import Findings, find, known_findings
from spectrace.tui.keymap import keymap_path, own_keys
from spectrace.tui.keys import by_key, every_key
from spectrace.tui.layout import bounded_size
from spectrace.tui.listed import Filter
from spectrace.tui.loader import Loader
from spectrace.tui.messages import DiagnosisMade, RequestsCounted, TaskAdvanced, TraceGrew
from spectrace.tui.pages import PAGES
from spectrace.tui.pages.own import fields_page, help_page
from spectrace.tui.pages.page import Page, PageLine
from spectrace.tui.prepaint import FirstPaint
from spectrace.tui.screens.asking import AskingScreen
from spectrace.tui.screens.copying import CopyScreen
from spectrace.tui.screens.key_screen import KeyScreen
from spectrace.tui.screens.page import PageScreen
from spectrace.tui.screens.palette import PaletteScreen
from spectrace.tui.screens.steps import DETAIL_DELAY, StepsScreen
from spectrace.tui.search import Task
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
        screen: page to begin with, "" = the list of steps.
        follow: follow the trace from the start.
        word: what is to be said first.
        first_paint: what is on the screen already.
        keymap: the file with the reader's own keys.
        ending: what signals do.
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
        screen: str = "",
        follow: bool = False,
        word: str = "",
        first_paint: FirstPaint | None = None,
        keymap: Path | None = None,
        ending: Ending | None = None,
    ) -> None:
        # Before App.__init__: the driver is made there and takes the first paint over.
        self.first_paint = first_paint
        self._ending = ending
        self.fault: list[str] = []
        """What went wrong in the viewer itself."""
        self.is_drawn = False
        """The screen has its lines; before that the first paint stays."""
        # `ansi_color` has to be known at construction: with NO_COLOR Textual else draws greys.
        super().__init__(
            driver_class=driver_class(is_frugal=terminal.is_frugal),
            ansi_color=True if terminal.is_ansi else None,
        )
        if terminal.is_ansi:
            self.theme = "ansi-dark"
        self.animation_level = "none"
        self.loader = loader
        self.pages: dict[str, Page] = {page.id: page for page in PAGES}
        self.keys, self.complaint = every_key(), ""
        if keymap is not None:
            self.keys, self.complaint = own_keys(self.keys, keymap)
        self.by_key = by_key(self.keys)
        self.history: dict[str, list[str]] = {}
        """What was typed at each prompt."""
        self.gathered: dict[str, tuple[int, Any]] = {}
        """Page -> length of the trace and facts, for pages that do not follow the cursor."""
        self.steps: StepsScreen
        """The main screen. Kept, since threads ask for it when Textual's stack of screens is gone."""
        self._diagnosing = Background()
        self._at = at
        self._first_screen = screen
        self._word = word
        self._own_keys = keymap
        self._follow = follow
        self._is_frugal = terminal.is_frugal
        self._has_mouse = terminal.has_mouse
        self._stop_following = Event()
        self.is_following = False

    def get_default_screen(self) -> StepsScreen:
        """The main screen."""
        word = self.complaint or self._word
        self.steps = StepsScreen(self.loader, at=self._at, scrolls_by_line=self._is_frugal, word=word)
        return self.steps

    @property
    def modes_before(self) -> list[Any] | None:
        """The terminal's modes before the first paint, which the driver does not find any more."""
        return None if self._ending is None else self._ending.modes

    def on_mount(self) -> None:
        """Ends in order when the terminal goes away or the process is asked to; draws anew after fg."""
        self.app_resume_signal.subscribe(self, lambda _: self.redraw())
        if self.is_headless:
            return
        if self._ending is None:
            return
        loop = asyncio.get_running_loop()
        self._ending.hand_over(partial(loop.call_soon_threadsafe, self.exit))

    def begin(self) -> None:
        """The steps have their lines: follows, and opens a screen, when asked to.

        Not before: what a screen draws while the first paint still stands would be held back for good.
        """
        self.is_drawn = True
        self.steps.refresh()
        if self._follow:
            self.call_next(self.steps.action_follow)
        if self._first_screen == "help":
            self.open_help()
        elif self._first_screen:
            self.open_page(self._first_screen)

    def on_unmount(self) -> None:
        """Lets the workers end at once."""
        self._stop_following.set()

    async def on_event(self, event: events.Event) -> None:
        """Bounds a terminal's size; hands a key to the screen on top and waits for it, see `KeyScreen`."""
        if isinstance(event, events.Resize):
            size = bounded_size(event.size, self.size)
            event = events.Resize.from_dimensions(size, event.pixel_size)
        if isinstance(event, events.Key) and self._screen_stack and isinstance(self.screen, KeyScreen):
            await self.hand_key(event)
        else:
            await super().on_event(event)

    async def hand_key(self, event: events.Key) -> None:
        """Hands a key to the screen on top."""
        await cast("KeyScreen", self.screen).take_key(event)

    # --- faults ---

    def _fatal_error(self) -> None:
        # As Textual's, without the values of variables: they are texts of the trace.
        self.panic(Traceback())

    def panic(self, *renderables: RenderableType) -> None:
        """Ends because of a fault of the viewer's own, which `run` tells when the screen is given back."""
        self.fault = self.fault or fault_lines(renderables)
        self._return_code = 1
        self._close_messages_no_wait()

    # --- screens ---

    def open_page(self, name: str, word: str = "", *, is_new: bool = False) -> bool:
        """Shows a page above the list of steps, with a word; False where there is none of this name.

        Args:
            name: id of the page.
            word: what is said there.
            is_new: also where it is shown already.
        """
        page = self.pages.get(name)
        if page is None:
            return False
        if is_new or not (isinstance(self.screen, PageScreen) and self.screen.page is page):
            row = self.steps.row
            self.show_steps()
            self.push_screen(PageScreen(page, row, scrolls_by_line=self._is_frugal, word=word))
        return True

    def open_place(self, line: PageLine) -> None:
        """Goes where a line of a page leads: to its step, and there to a page."""
        self.show_steps()
        if line.row is not None:
            if missing := self.steps.left_out(line.row):
                self.steps.say(missing)
                return
            self.steps.jump_to(line.row, line.word, position=line.position)
        if line.page:
            self.open_page(line.page, line.word)

    def show_steps(self) -> None:
        """Shows the list of steps."""
        while len(self.screen_stack) > 1:
            self.close_screen()

    def close_screen(self) -> AskingScreen:
        """Goes back; the screen that was below."""
        if isinstance(self.screen, PageScreen):
            self.screen.gathering.stop()
        self.pop_screen()
        return cast("AskingScreen", self.screen)

    def open_help(self) -> None:
        """Shows every key, or leaves them."""
        if isinstance(self.screen, PageScreen) and self.screen.page.id == "help":
            self.close_screen()
            return
        note = f'{self._own_keys or keymap_path()}: lines such as hunt.first = "f,f5"'
        note += f" ({self.complaint})" if self.complaint else ""
        page = help_page(self.keys, visible(note))
        self.push_screen(PageScreen(page, self.steps.row, scrolls_by_line=self._is_frugal))

    def open_fields(self) -> None:
        """Shows what an expression may name."""
        self.push_screen(PageScreen(fields_page(), self.steps.row, scrolls_by_line=self._is_frugal))

    def open_palette(self) -> None:
        """Finds a command by its words."""
        self.push_screen(PaletteScreen())

    def offer_copy(self, text: str, what: str) -> None:
        """Shows a text that may be copied."""
        self.push_screen(CopyScreen(text, what, scrolls_by_line=self._is_frugal))

    def read_page_again(self) -> None:
        """Tells the page on top that the trace grew."""
        if isinstance(self.screen, PageScreen) and self.screen.page.id in self.pages:
            self.screen.read_again()

    def cursor_moved(self, row: int, word: str) -> None:
        """Tells the page on top where the cursor of the steps is, and what is said of it."""
        if isinstance(self.screen, PageScreen):
            self.screen.follow_cursor(row, word)

    def tell(self, screen: KeyScreen, message: Message) -> None:
        """Hands a message over from a thread that may outlive the app."""
        with suppress(RuntimeError):  # The loop is closed.
            screen.post_message(message)

    async def settled(self) -> None:
        """Waits until nothing more is coming, for a picture of the screen."""
        await self.workers.wait_for_complete()
        while not self.is_drawn or (isinstance(self.screen, PageScreen) and self.screen.is_reading):
            await asyncio.sleep(0.01)
        await asyncio.sleep(DETAIL_DELAY)

    def toggle_mouse(self) -> bool:
        """Switches the mouse on or off; whether it is on now."""
        self._has_mouse = not self._has_mouse
        driver: Any = self._driver
        if hasattr(driver, "_enable_mouse_support"):
            driver._mouse = True  # Lets both of the following through.
            (driver._enable_mouse_support if self._has_mouse else driver._disable_mouse_support)()
        return self._has_mouse

    def redraw(self) -> None:
        """Draws every cell again."""
        if self._driver is not None:
            # Also makes the frugal driver forget what it believes is there.
            self._driver.write("\x1b[m\x1b[2J")
        self.screen.refresh()

    @work(thread=True, exclusive=True, group="count")
    def count_requests(self) -> None:
        """Counts the requests, which in a long trace takes longer than the first paint."""
        self.loader.count_requests()
        self.steps.post_message(RequestsCounted())

    # --- searching ---

    def run_task(self, task: Task) -> None:
        """Takes a search or a filter to its end in the background."""
        if isinstance(task, Filter):
            self._run_filter(task)
        else:
            self._run_search(task)

    @work(thread=True, exclusive=True, group="search")
    def _run_search(self, task: Task) -> None:
        self._run_to_end(task)

    @work(thread=True, group="filter")
    def _run_filter(self, task: Task) -> None:
        self._run_to_end(task)

    def _run_to_end(self, task: Task) -> None:
        worker = get_current_worker()
        told, had = monotonic(), task.has_found
        while not task.is_done and not worker.is_cancelled:
            task.advance()
            is_first = not had and task.has_found
            if is_first or monotonic() - told >= _PROGRESS_INTERVAL:
                told, had = monotonic(), task.has_found
                self.steps.post_message(TaskAdvanced(task))
        if not worker.is_cancelled:
            self.steps.post_message(TaskAdvanced(task))

    def stop_search(self) -> None:
        """Stops the search in the background."""
        self.workers.cancel_group(self, "search")

    # --- diagnosis ---

    @property
    def findings(self) -> Findings | None:
        """What was found, as soon as a screen has asked for it."""
        return known_findings(self.loader)

    def diagnose(self) -> None:
        """Asks every rule, on a thread; the screen is told."""
        self._diagnosing.start(lambda stop: find(self.loader.stoppable(stop)), self._diagnosed)

    def stop_diagnosis(self) -> None:
        """Waits for it no longer."""
        self._diagnosing.stop()

    def _diagnosed(self, outcome: Outcome) -> None:
        self.tell(self.steps, DiagnosisMade(outcome.value, outcome.error))

    # --- following ---

    def follow(self) -> None:
        """Begins to look for new steps."""
        self.is_following = True
        self.loader.watch()
        self._stop_following.clear()
        self._look_for_steps()

    def stop_following(self) -> None:
        """Looks no more."""
        self.is_following = False
        self._stop_following.set()

    @work(thread=True, exclusive=True, group="follow")
    def _look_for_steps(self) -> None:
        state = ""
        worker = get_current_worker()
        while not worker.is_cancelled and not self._stop_following.is_set():
            found = self.loader.refresh()
            before, state = state, self.loader.state
            loss = self.loader.loss
            if found or loss or state != before:
                self.steps.post_message(TraceGrew())
            if loss or state == "closed":
                self.is_following = False
                return
            self._stop_following.wait(FOLLOW_INTERVAL)
