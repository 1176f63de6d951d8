"""The viewer as a process of its own in a pseudo-terminal, and the screen that a person would see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import sys
import termios
import time
from pathlib import Path

from tests.tui.vt import Screen

_PROGRAM = """
import sys, spectrace
from spectrace.tui import viewer
from spectrace.tui.app import run
if "--stock-driver" in sys.argv:
    # The rest as for a slow line, so that both can be compared.
    choose = viewer.driver_class
    viewer.driver_class = lambda **_: choose(is_frugal=False)
if "--faulty" in sys.argv:
    # Ctrl-L is a fault of the viewer's own.
    viewer.Viewer.redraw = lambda _: 1 / 0
try:
    with spectrace.open(sys.argv[1]) as trace:
        screen = next((option[9:] for option in sys.argv if option.startswith("--screen=")), "")
        run(trace, screen=screen, follow="--follow" in sys.argv)
except spectrace.SpectraceError as error:
    sys.exit(str(error))
"""
PATIENCE = 60.0
"""Seconds after which a screen that does not come fails the test."""


class Session:
    """A viewer in a terminal of its own; use as a context manager.

    Args:
        path: the trace.
        options: of the program above.
        size: columns and lines.
        environ: more variables.
        shell: an interactive shell instead, in which `eval "$SPECTRACE_TEST"` starts the viewer.
    """

    def __init__(
        self,
        path: Path,
        *options: str,
        size: tuple[int, int] = (80, 24),
        environ: dict[str, str] | None = None,
        shell: bool = False,
    ) -> None:
        self.width, self.height = size
        self.screen = Screen(*size, is_strict=not shell)
        self.output = ""
        self._left = b""
        clean = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH")}
        given = {
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "SSH_CONNECTION": "test",
            # Neither the reader's own keys nor what was said to the reader before.
            "HOME": "/nonexistent",
            **(environ or {}),
        }
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            arguments = [sys.executable, "-c", _PROGRAM, str(path), *options]
            if shell:
                given |= {"PS1": "$ ", "SPECTRACE_TEST": shlex.join(arguments)}
                arguments = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
            os.execvpe(arguments[0], arguments, {**clean, **given})

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # It has ended by itself.
        os.close(self._fd)

    def send(self, text: str) -> None:
        """Types."""
        os.write(self._fd, text.encode())

    def until(self, *patterns: str) -> list[str]:
        """Reads until every pattern is on the screen; the screen's rows."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            shown = "\n".join(self.screen.lines)
            if all(re.search(pattern, shown) for pattern in patterns):
                return self.screen.lines
            self._read(deadline)
        raise AssertionError(f"{patterns} did not come; the screen is:\n" + "\n".join(self.screen.lines))

    def resize(self, width: int, height: int) -> None:
        """Another size, as a terminal emulator tells it; cells outside are gone."""
        screen = Screen(width, height, is_strict=False)
        for y in range(min(height, self.height)):
            row = self.screen.cells[y][:width]
            screen.cells[y][: len(row)] = row
        self.screen, self.width, self.height = screen, width, height
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def wait(self) -> int:
        """Reads to the end; the exit code, negative for a signal."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._read(deadline):
            pass
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
        try:
            data = self._left + os.read(self._fd, 65536) if ready else b""
        except OSError:  # The other end has closed.
            return False
        if not data:
            return False
        # Whole characters and whole escapes only.
        cut = max(data.rfind(b"\x1b"), 0)
        whole = data[:cut] if _is_cut(data[cut:]) else data
        while whole and not _decodes(whole):
            whole = whole[:-1]
        self._left = data[len(whole) :]
        text = whole.decode()
        self.output += text
        self.screen.feed(text)
        return True


def until_equal(one: Session, other: Session) -> None:
    """Reads from both until they show the same cells."""
    deadline = time.monotonic() + PATIENCE
    while one.screen.seen != other.screen.seen:
        if time.monotonic() > deadline:
            rows = zip(one.screen.lines, other.screen.lines, strict=True)
            raise AssertionError("\n".join(f"{a!r}\n{b!r}" for a, b in rows if a != b) or "styles differ")
        ready, _, _ = select.select([one._fd, other._fd], [], [], 1.0)
        for session in (one, other):
            if session._fd in ready:
                session._read(deadline)


def _is_cut(tail: bytes) -> bool:
    return tail[:1] == b"\x1b" and re.match(rb"\x1b(\[[?<=>0-9;$]*[a-zA-Z]|\][^\x07]*\x07)", tail) is None


def _decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
