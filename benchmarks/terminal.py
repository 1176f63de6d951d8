"""A small pseudo-terminal: starts a program in it, waits for a text, sends keys.

Knows bytes, not screens: a text must be written in one piece to be found. For Unix.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from types import TracebackType

COLUMNS, LINES = 120, 40


class Terminal:
    """A program running in a terminal of 120 x 40.

    Args:
        command: the program and its arguments.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._master, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=child, stdout=child, stderr=child, env=environment, start_new_session=True
        )
        os.close(child)
        self._output = b""

    def wait_for(self, text: bytes, seconds: float = 30.0) -> float:
        """Seconds from the start to the arrival of a text.

        Raises:
            TimeoutError: it did not come; what came is in the message.
        """
        deadline = time.perf_counter() + seconds
        while text not in self._output:
            if not self._read(deadline - time.perf_counter()):
                raise TimeoutError(f"{text!r} was not shown; the end of the output: {self._output[-400:]!r}")
        return time.perf_counter() - self.started

    def press(self, keys: str, quiet: float = 0.4, longest: float = 20.0) -> bytes:
        """Sends keys and waits until nothing has come for a while.

        Returns:
            What was written meanwhile.
        """
        self._output = b""
        os.write(self._master, keys.encode())
        deadline = time.perf_counter() + longest
        while time.perf_counter() < deadline and self._read(quiet):
            pass
        return self._output

    def _read(self, seconds: float) -> bool:
        """Takes what has come; False when nothing does in time or the program has ended."""
        if not select.select([self._master], [], [], max(0.0, seconds))[0]:
            return False
        try:
            found = os.read(self._master, 65_536)
        except OSError:
            return False
        self._output += found
        return bool(found)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
