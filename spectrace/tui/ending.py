"""The end that a signal asks for: in order where that is possible, and within a second where it is not.

Owns the handlers of SIGTERM and SIGHUP while the viewer runs. Decides nothing about when the reader quits.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

GRACE = 0.6
"""Seconds for an end in order."""
_LEAVE = (
    b"\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What Textual's driver sends at its end: paste, wrap, mouse, keyboard, screen, cursor, focus."""


def end_within(seconds: float, end: Callable[[], None]) -> None:
    """Calls `end`, which ends the process, after some seconds, whatever the other threads wait for.

    A bare thread: `threading` takes a lock to start one, which a signal handler may find taken for ever.
    """

    def wait() -> None:
        time.sleep(seconds)
        end()

    _thread.start_new_thread(wait, ())


class Ending:
    """What SIGTERM and SIGHUP do."""

    def __init__(self) -> None:
        self.number = 0
        """The signal that asked for the end, 0 = none did."""
        self.modes: list[Any] | None = None
        """The terminal's modes to put back, None where they were not changed."""
        self._before: dict[int, Any] = {}
        self._leave: Callable[[], object] | None = None

    def watch(self) -> None:
        """Takes the signals over. Until `hand_over` they end the process at once."""
        for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP.
            if hasattr(signal, name):
                number = getattr(signal, name)
                self._before[number] = signal.signal(number, self._asked)

    def hand_over(self, leave: Callable[[], object]) -> None:
        """Calls `leave` from now on, which has the loop end the app; a signal handler calls it."""
        self._leave = leave
        # The driver for web servers has taken them in between.
        for number in self._before:
            signal.signal(number, self._asked)

    def _asked(self, number: int, _: object) -> None:
        # Not one of the loop's own handlers: when the terminal is gone, the thread that writes to it dies,
        # the loop waits for that thread for ever, and calls nothing more.
        first, self.number = not self.number, self.number or number
        if self._leave is None:
            self._end_late()
        elif first:
            end_within(GRACE, self._end_late)
            with suppress(RuntimeError):  # The loop is closed: the end has begun.
                self._leave()

    def close(self) -> None:
        """Ends the process if a signal asked for it, with 128 + its number; else gives the handlers back."""
        if self.number:
            self._end()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _end_late(self) -> None:
        # Only where there is room: a terminal that nobody reads must not hold this thread as well.
        if self.modes is not None and select.select([], [2], [], 0)[1]:
            with suppress(OSError):
                os.write(2, _LEAVE)
        self._end()

    def _end(self) -> None:
        if self.modes is not None:
            import termios

            with suppress(OSError, termios.error):
                termios.tcsetattr(0, termios.TCSANOW, self.modes)
        # Not sys.exit: that waits for every thread, and flushes what cannot be written.
        os._exit(128 + self.number)
