"""Textual's driver for POSIX terminals, made to bear what happens around it.

Stopped before it is up or from outside, left while answers of the terminal are on their way, a terminal
that cannot say every character. Draws nothing and owns no cells.
"""

from __future__ import annotations

import sys
from threading import Event
from time import monotonic
from typing import Any

from textual import events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.messages import InBandWindowResize

from spectrace.tui.ascii import narrow_encoding, sayable

_PATIENCE = 0.5
"""Seconds after a question in which its answer may still be on its way."""


class SteadyDriver(LinuxDriver):
    """Textual's driver, with the answers to stops and to slow lines."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._encoding = narrow_encoding(sys.__stderr__)
        self._has_started = False
        self._asked_at = -_PATIENCE
        self._is_answered = Event()

    def write(self, data: str) -> None:
        """Sends what the terminal can say."""
        super().write(sayable(data, self._encoding) if self._encoding else data)

    # --- answers ---

    def _query_in_band_window_resize(self) -> None:
        # The last question of the start.
        self._is_answered.clear()
        self._asked_at = monotonic()
        super()._query_in_band_window_resize()

    def process_message(self, message: Message) -> None:
        """Takes a message of the thread that reads; notes the last answer of the terminal."""
        is_last = isinstance(message, InBandWindowResize) and (message.enabled or not message.supported)
        # Switched on, it reports its size at once.
        if is_last or isinstance(message, events.Resize):
            self._is_answered.set()
        super().process_message(message)

    def disable_input(self) -> None:
        """Reads no more; answers that are on their way are waited for, since the shell would read them."""
        self._is_answered.wait(max(0.0, self._asked_at + _PATIENCE - monotonic()))
        super().disable_input()

    # --- stops ---

    def start_application_mode(self) -> None:
        """Takes the terminal; what it goes back to is what it was before the first paint."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.attrs_before = getattr(self._app, "modes_before", None) or self.attrs_before
        self._has_started = True

    def stop_application_mode(self) -> None:
        """Gives the terminal back."""
        self._has_started = False
        super().stop_application_mode()

    @property
    def _is_up(self) -> bool:
        return self._has_started and self._key_thread is not None and self._key_thread.is_alive()

    def _sigtstp_application(self, *signal: Any) -> None:
        # Before and after, the screen is not ours to give back: the stop is left out.
        if self._is_up:
            super()._sigtstp_application(*signal)

    def _sigcont_application(self, *signal: Any) -> None:
        if self._is_up and not self._must_signal_resume:
            # Stopped by SIGSTOP, which asks nobody: the shell has had the terminal as it was.
            self.suspend_application_mode()
            self._must_signal_resume = True
        if self._must_signal_resume:
            super()._sigcont_application(*signal)
