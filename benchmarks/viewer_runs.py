"""One run of one program in one terminal, for `bench_viewer.py`: what it does when, and the samples.

Knows keys and clocks; which programs there are and what is good enough stands elsewhere.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from measure import memory_mb, quantile
from terminal import Reaction, Terminal, anonymous_mb, processor_seconds_of
from viewers import Program

REPEAT_RATE = 1 / 30
"""Seconds between two keys of a held one."""
HELD_KEYS = 60
SLOW_LINE = 1e6
"""Bits per second."""
IDLE_SECONDS = 10.0
NAVIGATION = (
    "j", "k", "<Down>", "<Up>", "<PgDn>", "<PgUp>", "\x04", "\x15", "g", "G", "<Home>", "<End>", "5000000G",
    "f", "e", "E", ".", ",", "}", "{", "l", "h",
)  # fmt: skip
"""Every key of the viewer that goes somewhere."""

Size = tuple[int, int]


class Samples:
    """What was measured: program and words -> values."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], list[float]] = {}

    def add(self, program: str, what: str, *values: float | None) -> None:
        """Takes values; None is left out."""
        self._values.setdefault((program, what), []).extend(v for v in values if v is not None)

    def of(self, program: str, what: str) -> list[float]:
        """The values, [] where nothing was measured."""
        return self._values.get((program, what), [])

    def median(self, program: str, what: str) -> float | None:
        """The median, None where nothing was measured."""
        values = self.of(program, what)
        return median(values) if values else None

    def p95(self, program: str, what: str) -> float | None:
        """The value that 95 % do not exceed, None where nothing was measured."""
        values = self.of(program, what)
        return quantile(values, 0.95) if values else None


class Bench:
    """Starts programs, each with a home of its own that it keeps.

    Args:
        folder: for the homes.
    """

    def __init__(self, folder: Path) -> None:
        self.samples = Samples()
        self.failures: list[str] = []
        """What did not come, in words."""
        self._folder = folder

    def attempt(self, run: Callable[[Program], None], program: Program) -> None:
        """One run; a program that does not do what is waited for leaves a sentence and no value."""
        try:
            run(program)
        except TimeoutError as error:
            self.failures.append(f"{program.name}, {run.__name__}: {str(error).splitlines()[0]}")
            print(f"!!! {program.name}, {run.__name__}: {error}", file=sys.stderr, flush=True)

    def start(
        self,
        program: Program,
        size: Size = (120, 40),
        *,
        command: Sequence[str] = (),
        environ: dict[str, str] | None = None,
        bits_per_second: float | None = None,
    ) -> Terminal:
        """The program in a terminal, as over ssh."""
        home = self._folder / f"home-{program.command[0].rpartition('/')[2]}"
        home.mkdir(exist_ok=True)
        given = {"PATH": os.environ["PATH"], "HOME": str(home), "SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22"}
        if program.command[0] == sys.executable and "PYTHONPATH" in os.environ:
            given["PYTHONPATH"] = os.environ["PYTHONPATH"]
        given |= {"TMUX_TMPDIR": str(self._folder), **(environ or {})}
        return Terminal(command or program.command, size=size, environ=given, bits_per_second=bits_per_second)

    def warm_up(self, program: Program) -> None:
        """Starts it once: files are cached and its home is furnished."""
        with self.start(program) as terminal:
            terminal.press("", program.loaded or program.ready, quiet=0.5, longest=90)

    # --- 120x40, from the start to a search ---

    def walk(self, program: Program) -> None:
        """Everything that is measured of every program, in one session."""
        add = self.samples.add
        with self.start(program) as terminal:
            self._open(program, terminal)
            if program.presses:
                _to_start(program, terminal)
                self.keys(program, terminal, "120x40")
                self._held(program, terminal)
                self._jumps(program, terminal)
            add(program.name, "anonymous", anonymous_mb(terminal.pid))
            add(program.name, "resident", memory_mb(terminal.pid, "VmHWM"))
            if program.search[0]:
                self._search(program, terminal)

    def _open(self, program: Program, terminal: Terminal) -> None:
        shown = terminal.wait_for(program.ready, 90)
        self.samples.add(program.name, "first screen", shown)
        key = terminal.press(*program.first_key, quiet=program.quiet, longest=60)
        handled = None if key.seen is None else key.sent + key.seen
        self.samples.add(program.name, "first key", handled)
        if program.loaded:
            self.samples.add(program.name, "loaded", terminal.wait_for(program.loaded, 60))
        else:
            self.samples.add(program.name, "loaded", handled if program.first_key == program.end else shown)
        terminal.press("", quiet=max(0.4, program.quiet))

    def keys(self, program: Program, terminal: Terminal, where: str) -> None:
        """Line and page keys, one after the other."""
        name = program.name
        quiet = program.quiet
        inside = [terminal.press(program.line, quiet=quiet) for _ in range(program.presses)]
        if program.has_cursor:
            terminal.press(program.line * terminal.size[1], quiet=2 * quiet)
            scrolled = [terminal.press(program.line, quiet=quiet) for _ in range(program.presses)]
        else:
            scrolled = inside
        pages = [terminal.press(program.page, quiet=quiet) for _ in range((program.presses + 1) // 2)]
        for what, reactions in (("line", inside), ("scroll", scrolled), ("page", pages)):
            self._add_keys(name, f"{what} {where}", reactions)

    def _add_keys(self, name: str, what: str, reactions: Sequence[Reaction]) -> None:
        self.samples.add(name, what, *(reaction.last for reaction in reactions))
        self.samples.add(name, f"{what} bytes", *(float(reaction.num_bytes) for reaction in reactions))

    def _held(self, program: Program, terminal: Terminal, what: str = "held") -> None:
        held = terminal.hold(program.line, HELD_KEYS, REPEAT_RATE)
        lag = held.last or 0.0
        self.samples.add(program.name, f"{what} lag", lag)
        self.samples.add(
            program.name, f"{what} kbit/s", held.num_bytes * 8e-3 / (HELD_KEYS * REPEAT_RATE + lag)
        )

    def _jumps(self, program: Program, terminal: Terminal) -> None:
        for _ in range(2):
            end = terminal.press(*program.end, quiet=program.quiet)
            start = terminal.press(*program.start, quiet=program.quiet)
            self.samples.add(program.name, "end", end.seen)
            self.samples.add(program.name, "start", start.seen)

    def _search(self, program: Program, terminal: Terminal) -> None:
        for keys in program.before_search:
            terminal.press(keys, quiet=max(0.3, program.quiet))
        found = terminal.press(*program.search, quiet=program.quiet, longest=60)
        self.samples.add(program.name, "search", found.seen)

    def whole(self, program: Program) -> None:
        """Loading and a search alone, for a program that takes a minute for it."""
        with self.start(program) as terminal:
            self.samples.add(program.name, "loaded", terminal.wait_for(program.loaded, 60))
            terminal.press("", quiet=1.0)
            self.samples.add(program.name, "end", terminal.press(*program.end, quiet=program.quiet).seen)
            self.samples.add(program.name, "anonymous", anonymous_mb(terminal.pid))
            self.samples.add(program.name, "resident", memory_mb(terminal.pid, "VmHWM"))
            self._search(program, terminal)

    # --- other sessions ---

    def small(self, program: Program) -> None:
        """Line and page keys at 80x24."""
        with self.start(program, (80, 24)) as terminal:
            terminal.wait_for(program.loaded or program.ready, 90)
            terminal.press("", quiet=max(0.4, program.quiet))
            _to_start(program, terminal)
            self.keys(program, terminal, "80x24")

    def slow(self, program: Program) -> None:
        """A held key over a slow line."""
        with self.start(program, bits_per_second=SLOW_LINE) as terminal:
            terminal.wait_for(program.loaded or program.ready, 90)
            terminal.press("", quiet=max(0.4, program.quiet))
            _to_start(program, terminal)
            if program.has_cursor:
                terminal.press(program.line * terminal.size[1], quiet=2 * program.quiet)
            self._held(program, terminal, "slow")

    def idle(self, programs: Sequence[Program]) -> None:
        """What all of them send and use while nobody types, at once."""
        terminals = {program.name: self.start(program) for program in programs}
        try:
            for program in programs:
                terminal = terminals[program.name]
                terminal.wait_for(program.loaded or program.ready, 120)
            for name, terminal in terminals.items():
                terminal.press("", quiet=1.5, longest=10)
                self.samples.add(name, "start bytes", float(len(terminal.output)))
            used = {name: processor_seconds_of(terminal.pid) for name, terminal in terminals.items()}
            sent = dict.fromkeys(terminals, 0)
            pause = 0.05
            for _ in range(int(IDLE_SECONDS / pause / len(terminals))):
                for name, terminal in terminals.items():
                    sent[name] += len(terminal.idle(pause))
            for name, terminal in terminals.items():
                self.samples.add(name, "idle bytes", float(sent[name]))
                self.samples.add(name, "idle seconds", processor_seconds_of(terminal.pid) - used[name])
        finally:
            for terminal in terminals.values():
                terminal.__exit__(None, None, None)

    def first_screen(self, program: Program) -> None:
        """The first rows, and no more."""
        with self.start(program) as terminal:
            self.samples.add(program.name, "first screen alone", terminal.wait_for(program.ready))

    def inside_tmux(self, program: Program) -> None:
        """Bytes at the terminal outside of tmux for a scroll by one line."""
        (self._folder / "tmux.conf").write_text("set -g status off\n", encoding="ascii")
        tmux = ["tmux", "-L", f"bench-{os.getpid()}", "-f", str(self._folder / "tmux.conf")]
        command = [*tmux, "new-session", shlex.join(program.command)]
        try:
            with self.start(program, command=command) as terminal:
                terminal.wait_for(program.ready, 60)
                terminal.press("", quiet=0.6)
                if program.has_cursor:
                    terminal.press(program.line * terminal.size[1], quiet=0.5)
                reactions = [
                    terminal.press(program.line, quiet=program.quiet) for _ in range(program.presses)
                ]
                self._add_keys(program.name, "tmux scroll", reactions)
        finally:
            environ = {**os.environ, "TMUX_TMPDIR": str(self._folder)}
            subprocess.run([*tmux, "kill-server"], env=environ, capture_output=True, check=False)

    def navigation(self, program: Program, cycles: int = 2) -> None:
        """Every key that goes somewhere, in the middle of the trace."""
        with self.start(program) as terminal:
            terminal.wait_for(program.ready)
            terminal.press("5000000G", quiet=0.6)
            for _ in range(cycles):
                for key in NAVIGATION:
                    reaction = terminal.press(key, quiet=0.12)
                    self.samples.add(program.name, f"key {key}", reaction.last)
            self._held(program, terminal, "held")
            self.samples.add(program.name, "anonymous", anonymous_mb(terminal.pid))
            self.samples.add(program.name, "resident", memory_mb(terminal.pid, "VmHWM"))

    def keys_while_searching(self, program: Program, presses: int = 12) -> None:
        """Keys during a search that finds nothing, then Esc."""
        with self.start(program) as terminal:
            terminal.wait_for(program.ready)
            terminal.press("", quiet=0.6)
            begun = terminal.press("/absent<Enter>", r"scanning \d+%", quiet=0.0)
            self.samples.add(program.name, "search progress", begun.seen)
            for row in range(1, presses + 1):
                key = terminal.press("j", rf"^ step {row}/", quiet=0.05)
                if "scanning" not in terminal.text:
                    break
                self.samples.add(program.name, "key while searching", key.seen)
            stopped = terminal.press("<Esc>", "stopped", quiet=0.0, longest=3)
            self.samples.add(program.name, "search stopped", stopped.seen)


def _to_start(program: Program, terminal: Terminal) -> None:
    """The first row on the first line, with nothing left to be drawn."""
    terminal.press(*program.start, quiet=max(0.3, program.quiet))
