"""The doors to the viewer: checks the terminal, draws the first screen, then loads Textual and runs it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spectrace.errors import UsageError, ViewerFault
from spectrace.format.reader import Trace
from spectrace.format.text import visible
from spectrace.tui.ending import GRACE, Ending, end_within
from spectrace.tui.keymap import keymap_path
from spectrace.tui.layout import LARGEST
from spectrace.tui.loader import Loader
from spectrace.tui.plain import check_screen
from spectrace.tui.prepaint import first_screen
from spectrace.tui.terminal import Terminal, places_text, terminal_of
from spectrace.tui.tip import first_tip, tip_path

if TYPE_CHECKING:
    from textual.pilot import Pilot

_SERVED = "textual.drivers.web_driver:WebDriver"
"""What a web server sets."""


def run(
    trace: Trace,
    *,
    at: int | None = None,
    first: bool = False,
    screen: str = "",
    follow: bool = False,
    against: Sequence[Path] = (),
) -> None:
    """Shows a trace until the reader quits.

    Args:
        trace: open; the caller closes it.
        at: number of the step to begin at.
        first: begin at the first rejection.
        screen: id of the screen to begin with, "" = the list of steps.
        follow: show new steps as they are recorded.
        against: files of another trace to compare with.

    Raises:
        UsageError: this is no terminal that a screen can be drawn on, or there is no such screen.
        ViewerFault: the viewer ended by a fault of its own.
    """
    if is_served(os.environ):
        _check_server()
    else:
        # A terminal knows its size; these are those of the shell, and stay when the window changes.
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
        _check_terminal()
    loader = Loader(trace, against)
    row = starting_row(loader, at=at, first=first, follow=follow)
    terminal = terminal_of(os.environ)
    # What is printed beside the viewer is printed over it.
    warnings.simplefilter("ignore")
    ending = Ending()
    ending.watch()
    try:
        with first_screen(loader, row, os.environ, ending) as painted:
            if screen:
                check_screen(screen)
            from spectrace.tui.viewer import Viewer

            viewer = Viewer(
                loader,
                terminal,
                at=row,
                screen=screen,
                follow=follow,
                word=first_tip(tip_path()),
                first_paint=painted,
                keymap=keymap_path(),
                ending=ending,
            )
            viewer.run(mouse=terminal.has_mouse)
    finally:
        ending.close()
    if viewer.fault:
        raise ViewerFault(viewer.fault)


def starting_row(loader: Loader, *, at: int | None, first: bool = False, follow: bool = False) -> int:
    """The step to begin at."""
    if at is not None:
        return at
    if first and loader.total:
        return loader.next_rejected(0) or 0
    return loader.total - 1 if follow else 0


def is_served(environ: Mapping[str, str]) -> bool:
    """Whether a web server runs this process and speaks for the terminal."""
    return "TEXTUAL_DRIVER" in environ


def screenshot(
    trace: Trace, out: Path, *, row: int, screen: str, size: tuple[int, int], against: Sequence[Path] = ()
) -> None:
    """Draws a screen without a terminal and saves it as SVG.

    Args:
        trace: open.
        out: file to write.
        row: step under the cursor.
        screen: id of the screen, "" = the list of steps.
        size: columns and lines.
        against: files of another trace to compare with.

    Raises:
        UsageError: there is no such screen.
        OSError: the file cannot be written.
        ViewerFault: the viewer ended by a fault of its own.
    """
    check_screen(screen)
    from spectrace.tui.viewer import Viewer

    terminal = Terminal(is_frugal=False, is_ansi=False, has_mouse=False)
    viewer = Viewer(Loader(trace, against), terminal, at=row, screen=screen)
    pictures: list[str] = []

    async def draw(pilot: Pilot[object]) -> None:
        await viewer.settled()
        await pilot.pause()
        pictures.append(viewer.export_screenshot())
        viewer.exit()

    viewer.run(headless=True, size=size, auto_pilot=draw)
    if viewer.fault:
        raise ViewerFault(viewer.fault)
    out.write_text("".join(pictures), encoding="utf-8")


def serve(path: Path, options: list[str], *, port: int) -> None:
    """Shows the viewer in browsers of this machine until it is interrupted.

    Args:
        path: the trace.
        options: of `spectrace view`, for each browser.
        port: on the loopback interface: whoever reaches it reads the trace.

    Raises:
        UsageError: the extra is not installed.
    """
    import asyncio  # Not above: the first paint does without.

    try:
        from textual_serve.server import Server
    except ImportError:
        raise UsageError("--serve needs textual-serve: pip install 'spectrace-tui[serve]'") from None
    command = shlex.join([sys.executable, "-m", "spectrace", "view", *options, "--", str(path)])

    class Bounded(Server):
        is_ending = False

        async def on_startup(self, app: Any) -> None:
            if hasattr(signal, "SIGHUP"):
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.request_exit)
            await super().on_startup(app)

        def request_exit(self) -> None:
            # Once is enough: a second Ctrl-C, which may wait in the loop already, would interrupt the end.
            if self.is_ending:
                return
            self.is_ending = True
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                if hasattr(signal, name):
                    asyncio.get_running_loop().remove_signal_handler(getattr(signal, name))
                    signal.signal(getattr(signal, name), signal.SIG_IGN)
            # In order it waits for every browser to go; their viewers end with this process.
            end_within(GRACE, lambda: os._exit(0))
            super().request_exit()

    Bounded(command, host="127.0.0.1", port=port, title="spectrace").serve()


def _check_server() -> None:
    if os.environ["TEXTUAL_DRIVER"] != _SERVED:
        name = visible(os.environ["TEXTUAL_DRIVER"], limit=80)
        raise UsageError(f"TEXTUAL_DRIVER is {name!r}, which the viewer does not know; unset TEXTUAL_DRIVER")


def _check_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("the viewer needs a terminal; spectrace view --plain prints what it shows")
    width, height = os.get_terminal_size(sys.stdin.fileno())
    if width > LARGEST[0] or height > LARGEST[1]:
        raise UsageError(
            f"the terminal says that it has {width:,} columns and {height:,} lines; "
            "stty cols 80 rows 24 tells it otherwise"
        )
    if not places_text(os.environ):
        term = visible(os.environ.get("TERM", "")) or "unset"
        raise UsageError(
            f"this terminal has no screen to draw on (TERM is {term}); "
            "spectrace view --plain and spectrace stats print the same"
        )
