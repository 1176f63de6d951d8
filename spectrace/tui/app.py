"""The door to the viewer: checks the terminal, draws the first screen, then loads Textual and runs it."""

from __future__ import annotations

import os
import sys

from spectrace.errors import UsageError
from spectrace.format.reader import Trace
from spectrace.tui.loader import Loader
from spectrace.tui.prepaint import first_screen
from spectrace.tui.terminal import terminal_of


def run(trace: Trace, *, at: int | None = None, follow: bool = False) -> None:
    """Shows a trace until the reader quits.

    Args:
        trace: open; the caller closes it.
        at: number of the step to begin at.
        follow: show new steps as they are recorded.

    Raises:
        UsageError: this is no terminal that a screen can be drawn on.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("the viewer needs a terminal; spectrace stats and spectrace steps print the same")
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        raise UsageError(
            "this terminal cannot place text (TERM is dumb or unset); "
            "spectrace stats and spectrace steps print the same"
        )
    terminal = terminal_of(os.environ)
    loader = Loader(trace)
    row = at if at is not None else (loader.total - 1 if follow else 0)
    with first_screen(loader, row, os.environ) as painted:
        from spectrace.tui.viewer import Viewer

        viewer = Viewer(loader, terminal, at=row, follow=follow, first_paint=painted)
        viewer.run(mouse=terminal.has_mouse)
