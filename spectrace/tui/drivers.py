"""Which driver carries the viewer to its reader, and what Textual's own are made to bear.

Draws nothing; what the drivers write is theirs.
"""

from __future__ import annotations

import codecs
import os
from functools import partial
from types import ModuleType
from typing import Any

from textual._xterm_parser import XTermParser
from textual.driver import Driver
from textual.drivers import web_driver
from textual.message import Message
from textual.messages import ExitApp

from spectrace.tui.ending import GRACE, end_within


class ServedDriver(web_driver.WebDriver):
    """Textual's driver for a web server, which ends with the server."""

    def run_input_thread(self) -> None:
        """Reads keys until the server closes the pipe or goes away, and ends the viewer then."""
        super().run_input_thread()
        if not self.exit_event.is_set():
            end_within(GRACE, lambda: os._exit(0))
            self._app.post_message(ExitApp())


def driver_class(*, is_frugal: bool) -> type[Driver] | None:
    """The driver for where this process runs, None = the one that Textual chooses."""
    _bear_any_bytes(web_driver)
    if "TEXTUAL_DRIVER" in os.environ:  # A web server speaks for the terminal.
        return ServedDriver
    if os.name != "posix":
        return None
    from textual.drivers import linux_driver

    _bear_any_bytes(linux_driver)
    if is_frugal:
        from spectrace.tui.frugal import FrugalDriver

        return FrugalDriver
    from spectrace.tui.steady import SteadyDriver

    return SteadyDriver


class SteadyParser(XTermParser):
    """Textual's reader of keys, for a terminal that says it has no pixels."""

    def parse_mouse_code(self, code: str) -> Message | None:
        """A click; in cells where the sizes to work them out of are missing."""
        # A size of nothing is false.
        self.mouse_pixels = bool(self.mouse_pixels and self.terminal_size and self.terminal_pixel_size)
        return super().parse_mouse_code(code)


def _bear_any_bytes(module: ModuleType) -> None:
    """Makes a driver read whatever a terminal sends; bytes that are not UTF-8 as U+FFFD.

    Textual 8 decodes strictly inside a long function that looks these names up in its module: one byte of a
    pasted Latin-1 word, or a click in a window without pixels, ended the program with a traceback.
    """
    setattr(module, "getincrementaldecoder", _replacing)  # noqa: B010
    setattr(module, "XTermParser", SteadyParser)  # noqa: B010


def _replacing(encoding: str) -> Any:
    return partial(codecs.getincrementaldecoder(encoding), "replace")
