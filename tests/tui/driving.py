"""Driving the viewer without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual._xterm_parser import XTermParser
from textual.pilot import Pilot

import spectrace
from spectrace.tui.loader import Loader
from spectrace.tui.screens.page import PageScreen
from spectrace.tui.screens.steps import StepsScreen
from spectrace.tui.terminal import Terminal
from spectrace.tui.viewer import Viewer

PLAIN = Terminal(is_frugal=False, is_ansi=True, has_mouse=False)


@dataclass
class Driven:
    """A running viewer."""

    app: Viewer
    pilot: Pilot[None]

    @property
    def steps(self) -> StepsScreen:
        """The main screen."""
        screen = self.app.screen_stack[0]
        assert isinstance(screen, StepsScreen)
        return screen

    async def press(self, *keys: str) -> None:
        """Presses keys and waits for everything that they set in motion."""
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        """Waits for workers, timers' own work and drawing."""
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()
        while self.is_reading:
            await asyncio.sleep(0.001)
        await self.pilot.pause()
        self.steps._show_detail()
        await self.pilot.pause()

    @property
    def is_reading(self) -> bool:
        """A thread beside the app is at work."""
        screen = self.app.screen
        if isinstance(screen, PageScreen) and screen._early is not None:
            return True
        works = [self.app._diagnosing, *([screen.gathering] if isinstance(screen, PageScreen) else [])]
        return any(work._thread is not None and work._thread.is_alive() for work in works)

    async def type(self, text: str) -> None:
        """Hands every key to the app before the first of them is acted on, as a burst over SSH does."""
        driver = self.app._driver
        assert driver is not None
        for event in XTermParser().feed(text):
            driver.send_message(event)
        await self.settle()

    @property
    def lines(self) -> list[str]:
        """The rows of the screen as text."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        """The whole screen."""
        return "\n".join(self.lines)

    def row_of(self, text: str) -> str:
        """The first row of the screen that holds a text."""
        return next(line for line in self.lines if text in line)


@asynccontextmanager
async def viewing(
    path: Path, *, size: tuple[int, int] = (80, 24), terminal: Terminal = PLAIN, **options: Any
) -> AsyncIterator[Driven]:
    """Opens a trace in the viewer."""
    with spectrace.open(path) as trace:
        app = Viewer(Loader(trace), terminal, **options)
        async with app.run_test(size=size) as pilot:
            driven = Driven(app, pilot)
            await driven.settle()
            yield driven
