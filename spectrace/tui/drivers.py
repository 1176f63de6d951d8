"""Which driver carries the viewer to its reader, and what Textual's own are made to bear.

Draws nothing; what the drivers write is theirs.
"""

from __future__ import annotations

import codecs
import os
from functools import partial
from types import ModuleType
from typing import Any

from textual.driver import Driver
from textual.drivers import web_driver
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
    if not is_frugal:
        return None
    from spectrace.tui.frugal import FrugalDriver

    return FrugalDriver


def _bear_any_bytes(module: ModuleType) -> None:
    """Makes a driver read bytes that are not UTF-8 as U+FFFD.

    Textual 8 decodes strictly inside a long function that looks this name up in its module: one byte of a
    pasted Latin-1 word ended the program with a traceback.
    """
    setattr(module, "getincrementaldecoder", _replacing)  # noqa: B010


def _replacing(encoding: str) -> Any:
    return partial(codecs.getincrementaldecoder(encoding), "replace")
