"""A pseudo-terminal with a clock: starts a program in it, sends keys, and says when what was seen.

What comes is stamped and kept, and turned into a screen only while nothing comes, so that looking does not
compete with what is measured. Answers what programs ask of terminals. A throttled one reads no faster
than a slow line would. Ends what it started by its process id. For Linux: processor time and memory are
read from /proc.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from screen import Screen

COLUMNS, LINES = 120, 40
_LULL = 0.004
"""Seconds of silence after which what came is looked at."""
_PIECE = 1024
"""Bytes looked at before the terminal is asked again whether more has come."""
_QUERY = re.compile(
    rb"\x1b\[(?P<device>[>=]?0?c)|\x1b\[(?P<cursor>6n)|\x1b\[(?P<keyboard>\?u)"
    rb"|\x1b\[\?(?P<mode>\d+)\$p|\x1b\](?P<colour>1[01]);\?(?:\x07|\x1b\\)"
)
KEYS = {
    "<Up>": "\x1b[A", "<Down>": "\x1b[B", "<PgUp>": "\x1b[5~", "<PgDn>": "\x1b[6~", "<Home>": "\x1b[H",
    "<End>": "\x1b[F", "<Enter>": "\r", "<Esc>": "\x1b",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reaction:
    """What followed a key. Seconds are counted from the key."""

    sent: float
    """When the key was sent, in seconds from the start of the program."""
    first: float | None
    """To the first byte, None when nothing came."""
    last: float | None
    """To the last byte before it became quiet."""
    seen: float | None
    """To the bytes that made the screen match what was waited for."""
    num_bytes: int
    data: bytes


def keys_of(text: str) -> bytes:
    """The bytes of keys, with names such as <Down> for those without a character."""
    return re.sub("|".join(map(re.escape, KEYS)), lambda name: KEYS[name[0]], text).encode()


class Terminal:
    """A program running in a terminal.

    Args:
        command: the program and its arguments.
        size: columns and lines.
        environ: variables beside PATH, TERM and LANG; None takes all of this process.
        bits_per_second: how fast the line is, None = as fast as this machine.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        size: tuple[int, int] = (COLUMNS, LINES),
        environ: Mapping[str, str] | None = None,
        bits_per_second: float | None = None,
    ) -> None:
        self.size = size
        self._screen = Screen(*size)
        self._chunks: list[tuple[float, bytes]] = []
        self._shown = 0
        """Chunks that are on the screen."""
        self._rest = b""
        """What of the chunk after those is not."""
        self._asked = b""
        self._rate = bits_per_second
        self._allowance, self._allowed_at = 0.0, time.perf_counter()
        self.is_open = True
        usual = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
        given = {**os.environ, **usual} if environ is None else {**usual, **environ}
        self.started = time.perf_counter()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            _become(command, size, given)
        self.modes = termios.tcgetattr(self._fd)
        """The terminal's modes before the program changed them."""
        os.set_blocking(self._fd, False)

    # --- keys ---

    def press(self, keys: str, until: str = "", *, quiet: float = 0.2, longest: float = 20.0) -> Reaction:
        """Sends keys in one piece and waits until it is quiet and the screen matches.

        Args:
            keys: as `keys_of` takes them.
            until: what the screen must match; "" = anything.
            quiet: seconds without a byte.
            longest: seconds after which it is waited no more.
        """
        self._drain()
        before = len(self._chunks)
        sent = time.perf_counter()
        self.send(keys)
        seen = self._settle(until, since=sent, quiet=quiet, longest=longest)
        return self._reaction(sent, before, seen)

    def hold(self, keys: str, count: int, period: float) -> Reaction:
        """Sends a key again and again as a held key does; seconds count from the last one."""
        self._drain()
        before = len(self._chunks)
        start = time.perf_counter()
        for number in range(count):
            self.send(keys)
            while (left := start + (number + 1) * period - time.perf_counter()) > 0:
                self._read(min(left, 0.005))
        released = time.perf_counter()
        self._settle("", since=released, quiet=0.4, longest=20.0)
        return self._reaction(released, before, None)

    def send(self, keys: str) -> None:
        """Sends keys and waits for nothing."""
        view = memoryview(keys_of(keys))
        while view and self.is_open:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                self._read(0.01)
            except OSError:
                self.is_open = False

    def wait_for(self, until: str, longest: float = 30.0) -> float:
        """Seconds from the start of the program to the bytes that made the screen match.

        Raises:
            TimeoutError: it did not match; the screen is in the message.
        """
        if self._settle(until, since=self.started, quiet=0.0, longest=longest) is None:
            raise TimeoutError(f"{until!r} was not shown; the screen is:\n{self.text}")
        # Once more from the start: it may have been there before anybody asked.
        pattern, screen = re.compile(until, re.M), Screen(*self.size)
        for at, data in self._chunks:
            screen.feed(data)
            if pattern.search(screen.text):
                return at - self.started
        return self._chunks[-1][0] - self.started

    def idle(self, seconds: float) -> bytes:
        """What is written while nobody types."""
        before = len(self._chunks)
        end = time.perf_counter() + seconds
        while self.is_open and (left := end - time.perf_counter()) > 0:
            self._read(left)
        return b"".join(data for _, data in self._chunks[before:])

    def resize(self, columns: int, lines: int) -> None:
        """Takes another size and tells the program."""
        self._look(None, 0.0)
        self.size = columns, lines
        self._screen.resize(columns, lines)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    # --- what is seen ---

    @property
    def text(self) -> str:
        """The screen."""
        self._look(None, 0.0)
        return self._screen.text

    @property
    def output(self) -> bytes:
        """Everything that was written."""
        return b"".join(data for _, data in self._chunks)

    def _settle(self, until: str, *, since: float, quiet: float, longest: float) -> float | None:
        """Reads until it was quiet and the screen matched; when it did."""
        pattern = re.compile(until, re.M) if until else None
        begun = time.perf_counter()
        seen = since if pattern is not None and self._is_there(pattern, begun) else None
        while self.is_open and time.perf_counter() < begun + longest:
            last = max(self._chunks[-1][0] if self._chunks else begun, begun)
            silence = time.perf_counter() - last
            waiting = self._shown < len(self._chunks) or bool(self._rest)
            if self._read(0.0 if waiting and silence > _LULL else _LULL):
                continue
            if self._is_starved():
                continue
            if waiting and silence > _LULL:
                found = self._look_at_a_piece(pattern if seen is None else None)
                seen = found if seen is None and found is not None and found >= since else seen
            elif silence >= quiet and (pattern is None or seen is not None):
                break
        return self._look(pattern, since) if pattern is not None and seen is None else seen

    def _reaction(self, sent: float, before: int, seen: float | None) -> Reaction:
        """What came after the first `before` chunks."""
        chunks = self._chunks[before:]
        data = b"".join(data for _, data in chunks)
        return Reaction(
            sent=sent - self.started,
            first=chunks[0][0] - sent if chunks else None,
            last=max(chunks[-1][0] - sent, 0.0) if chunks else None,
            seen=None if seen is None else seen - sent,
            num_bytes=len(data),
            data=data,
        )

    def _is_there(self, pattern: re.Pattern[str], now: float) -> bool:
        """Whether the screen matches already, with nothing left to look at."""
        return self._shown == len(self._chunks) and pattern.search(self._screen.text) is not None

    def _look(self, pattern: re.Pattern[str] | None, since: float) -> float | None:
        """Puts everything that came on the screen; when it began to match."""
        seen = None
        while self._shown < len(self._chunks):
            found = self._look_at_a_piece(pattern if seen is None else None)
            seen = found if seen is None and found is not None and found >= since else seen
        return seen

    def _look_at_a_piece(self, pattern: re.Pattern[str] | None) -> float | None:
        at, data = self._chunks[self._shown]
        data = self._rest or data
        self._screen.feed(data[:_PIECE])
        self._rest = data[_PIECE:]
        if self._rest:
            return None
        self._shown += 1
        return at if pattern is not None and pattern.search(self._screen.text) else None

    # --- bytes ---

    def _drain(self) -> None:
        while self._read(0.02):
            pass
        self._look(None, 0.0)

    def _is_starved(self) -> bool:
        """Whether the slow line may not take more now."""
        return self._rate is not None and self._allowance < 256

    def _read(self, longest: float) -> bool:
        """Takes what has come; False when nothing does in time or the program has ended."""
        limit = 65_536
        if self._rate is not None:
            now = time.perf_counter()
            earned = (now - self._allowed_at) * self._rate / 8
            self._allowance, self._allowed_at = min(self._allowance + earned, 4096.0), now
            if self._is_starved():
                time.sleep(min(longest, (256 - self._allowance) * 8 / self._rate))
                return False
            limit = int(self._allowance)
        if not select.select([self._fd], [], [], max(0.0, longest))[0]:
            return False
        try:
            data = os.read(self._fd, limit)
        except OSError:
            data = b""
        if not data:
            self.is_open = False
            return False
        self._chunks.append((time.perf_counter(), data))
        self._allowance -= len(data)
        self._answer(data)
        return True

    def _answer(self, data: bytes) -> None:
        """Answers as xterm does, so that no program waits for it."""
        asked = self._asked + data
        end = 0
        for query in _QUERY.finditer(asked):
            end = query.end()
            os.write(self._fd, _reply(query))
        escape = asked.rfind(b"\x1b", end)
        self._asked = asked[escape:] if escape >= 0 and len(asked) - escape < 24 else b""

    # --- the end ---

    def hang_up(self) -> float:
        """Closes the terminal as a lost connection does; seconds until the program has gone."""
        os.close(self._fd)
        self._fd, self.is_open = -1, False
        return self._gone_after(time.perf_counter())

    def signal(self, number: int) -> float:
        """Sends a signal; seconds until the program has gone."""
        sent = time.perf_counter()
        os.kill(self.pid, number)
        return self._gone_after(sent)

    def _gone_after(self, start: float, longest: float = 10.0) -> float:
        while time.perf_counter() < start + longest:
            if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
                self.pid = 0
                gone = time.perf_counter() - start
                while self._fd >= 0 and self._read(0.02):
                    pass
                return gone
            if self._fd < 0 or not self.is_open or not self._read(0.005):
                time.sleep(0.002)
        return float("inf")

    def modes_now(self) -> list[Any]:
        """The terminal's modes as they are."""
        return termios.tcgetattr(self._fd)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in [] if not self.pid else family(self.pid)[::-1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.pid:
            os.waitpid(self.pid, 0)
        if self._fd >= 0:
            os.close(self._fd)


def _become(command: Sequence[str], size: tuple[int, int], environ: Mapping[str, str]) -> None:
    """Turns this forked process into the program."""
    try:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        os.execvpe(command[0], list(command), dict(environ))
    finally:
        os._exit(127)


def _reply(query: re.Match[bytes]) -> bytes:
    if query["device"]:
        return b"\x1b[>0;276;0c" if query["device"].startswith(b">") else b"\x1b[?62;22c"
    if query["cursor"]:
        return b"\x1b[1;1R"
    if query["mode"]:
        return b"\x1b[?%s;%d$y" % (query["mode"], 2 if query["mode"] == b"2026" else 0)
    if query["colour"]:
        return b"\x1b]%s;rgb:0000/0000/0000\x1b\\" % query["colour"]
    return b""


# --- what a program costs --------------------------------------------------------------------------


def family(pid: int) -> list[int]:
    """A process and those it started, parents first."""
    found = [pid]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


def processor_seconds_of(pid: int) -> float:
    """User and system time of a process and those it started."""
    ticks = 0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def anonymous_mb(pid: int) -> float:
    """Memory without a file behind it, of a process and those it started; what they share counts once."""
    total = 0.0
    for one in family(pid):
        found = re.search(r"^Pss_Anon:\s+(\d+)", Path(f"/proc/{one}/smaps_rollup").read_text(), re.M)
        total += int(found[1]) / 1e3 if found else 0.0
    return total
