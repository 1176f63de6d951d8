"""The driver for terminals at the end of a slow line: `Painted` between Textual's frames and the screen.

Decides what is a frame and what is talk with the terminal; sends nothing for a frame that changes
nothing. Owns no cells.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from textual.app import App

from spectrace.tui.painted import Painted
from spectrace.tui.steady import SteadyDriver

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_ALTERNATE_SCREEN = "\x1b[?1049h"
_FRAME = re.compile(r"\x1b\[\d+;\d+H")
_TALK = re.compile(r"(\x1b\[(?!\?1049)[?>=<][0-9;]*\$?[a-z]|\x1b\][^\x07\x1b]*\x07|\x07)+")
"""Modes, queries, titles and the bell, which change no cell."""


class FrugalDriver(SteadyDriver):
    """Textual's driver with `Painted` between the frames and the terminal."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._painted = Painted()
        self._update: Literal["none", "held", "open"] = "none"
        first = getattr(app, "first_paint", None)
        self._is_first_paint_shown = first is not None
        if first is not None:
            self._painted.resize(first.width, first.height)
            self._painted.reduce(first.frame)

    def write(self, data: str) -> None:
        """Sends a frame as the changes it makes, anything else as it is."""
        if data == _BEGIN:
            # Held back until the frame turns out to change something: idle sends nothing.
            self._update = "held"
        elif data == _END:
            if self._update == "open":
                super().write(data)
            self._update = "none"
        elif data == _ALTERNATE_SCREEN and self._is_first_paint_shown:
            pass  # Entered already; once more would clear it.
        elif _FRAME.match(data):
            if self._is_first_paint_shown and not getattr(self._app, "is_drawn", True):
                return  # Empty frames of an app that is not laid out yet.
            self._is_first_paint_shown = False
            self._painted.resize(*self._app.size)
            self._send(self._painted.reduce(data))
        else:
            if not _TALK.fullmatch(data):
                self._painted.forget()
            super().write(data)

    def stop_application_mode(self) -> None:
        """Leaves the screen, and with it what was painted first."""
        self._is_first_paint_shown = False
        super().stop_application_mode()

    def _send(self, data: str) -> None:
        if not data:
            return
        if self._update == "held":
            self._update = "open"
            data = _BEGIN + data
        super().write(data)
