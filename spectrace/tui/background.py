"""Slow work beside the viewer, on a thread that is left behind when nobody waits for it.

The thread is a daemon: quitting never waits for a reading of the whole trace. No Textual here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Any

from spectrace.errors import SpectraceError
from spectrace.format.text import visible
from spectrace.tui.loader import Stopped


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    value: Any = None
    error: str = ""
    """One sentence, "" when it went well."""


class Background:
    """One piece of work at a time; a new one makes the old one unwanted."""

    def __init__(self) -> None:
        self._stop = Event()
        # Between a look at whether anybody waits and the telling, nobody may stop waiting.
        self._telling = Lock()
        self._thread: Thread | None = None
        self.is_running = False
        """Somebody waits for the outcome."""

    def start(self, work: Callable[[Event], Any], tell: Callable[[Outcome], None]) -> None:
        """Begins.

        Args:
            work: told when nobody waits any more; raises `Stopped` or goes on, as it likes.
            tell: takes the outcome, on the thread, and waits for nobody; not called once the work was
                stopped.
        """
        self.stop()
        stop = self._stop = Event()
        self.is_running = True

        def run() -> None:
            outcome = _outcome(work, stop)
            with self._telling:
                if not stop.is_set():
                    self.is_running = False
                    tell(outcome)

        self._thread = Thread(target=run, daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """Waits no longer; whether anything was going on."""
        with self._telling:
            was_running, self.is_running = self.is_running, False
            self._stop.set()
        return was_running


def _outcome(work: Callable[[Event], Any], stop: Event) -> Outcome:
    try:
        return Outcome(work(stop))
    except Stopped:
        return Outcome()
    except (SpectraceError, OSError) as error:
        return Outcome(error=visible(str(error), limit=400))
    except Exception as error:  # noqa: BLE001 (a screen that fails says so, and the others go on)
        return Outcome(
            error=f"this cannot be shown: {type(error).__name__}: {visible(str(error), limit=300)}"
        )
