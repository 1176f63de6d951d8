"""What is left of a recording that something happened to, measured with the commands that a person types."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import spectrace
from benchmarks.reliability.faults import Fault
from benchmarks.reliability.host import ERRORS, TOLD, TRACE
from spectrace.cli import main

ROOT = Path(__file__).parents[2]
DEADLINE_S = 300
"""A host that takes longer hangs."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """One fault, once."""

    fault: Fault
    ended: int
    """Exit code, or minus the signal."""
    given: int
    """Steps that the host has seen."""
    output: str
    """same | same until then | none | DIFFERS"""
    raised: str | None
    refused: str | None
    """What a second recorder was told."""
    warnings: list[str]
    errors: str
    """What the host printed."""
    state: str = ""
    """closed | unclosed; of a file that is no trace, why."""
    steps: int = 0
    """Steps that can be read."""
    declared: int = 0
    """Steps of which the trace says that they are missing."""
    problems: list[str] = field(default_factory=list)
    numbers: list[tuple[str, int]] = field(default_factory=list)
    """Request and number of every step."""
    stats: str = ""
    """First line that `spectrace stats` prints beside the counts, or the error."""
    repaired: str = ""
    """What `spectrace repair` says."""

    @property
    def is_trace(self) -> bool:
        """Whether the file opens."""
        return self.state in ("closed", "unclosed", "recording")

    @property
    def are_in_order(self) -> bool:
        """Whether the steps of each request are numbered upwards, none twice."""
        by_request: dict[str, list[int]] = {}
        for request, number in self.numbers:
            by_request.setdefault(request, []).append(number)
        return all(steps == sorted(set(steps)) for steps in by_request.values())

    @property
    def repaired_steps(self) -> int | None:
        """Steps that a repair saves; None where it refuses."""
        found = re.search(r": ([\d,]+) whole steps", self.repaired)
        return None if found is None else int(found[1].replace(",", ""))

    @property
    def lost(self) -> int:
        """Steps that the host has seen and nobody can read."""
        return self.given - self.steps


def measured(fault: Fault, folder: Path, ended: int, expected: list[int]) -> Outcome:
    """What a host has left in its folder."""
    told = [json.loads(line) for line in (folder / TOLD).read_text(encoding="utf-8").splitlines()]
    calls: dict[int, list[list[int]]] = {}
    for what, value in told:
        if what == "step":
            calls.setdefault(value[0], []).append(value[1])
    expected = next((value for what, value in told if what == "expected"), expected)
    outcome = Outcome(
        fault=fault,
        ended=ended,
        given=sum(map(len, calls.values())),
        output=_output(calls, [value for what, value in told if what == "output"], expected),
        raised=next((value for what, value in told if what == "raised"), None),
        refused=next((value for what, value in told if what == "refused"), None),
        warnings=[value for what, value in told if what == "warning"],
        errors=(folder / ERRORS).read_text(encoding="utf-8"),
    )
    _read(outcome, folder / TRACE)
    return outcome


def _output(calls: dict[int, list[list[int]]], outputs: list[list[int]], expected: list[int]) -> str:
    so_far = [[token for step in steps for token in step] for steps in calls.values()]
    if any(ids != expected for ids in outputs) or any(ids != expected[: len(ids)] for ids in so_far):
        return "DIFFERS"
    if not any(so_far):
        return "none"
    return "same" if len(outputs) == len(calls) else "same until then"


def _read(outcome: Outcome, path: Path) -> None:
    try:
        with spectrace.open(path) as trace:
            outcome.state = trace.state
            outcome.numbers = [(step.request, step.step) for step in trace]
            outcome.steps = len(outcome.numbers)
            outcome.declared = sum(gap.lost for gap in trace.gaps)
            outcome.problems = list(trace.problems)
    except (OSError, spectrace.SpectraceError) as error:
        outcome.state = str(error).replace(str(path), path.name)
    outcome.stats = _said("stats", path)
    with tempfile.TemporaryDirectory() as elsewhere:  # the disk of the trace may be full
        outcome.repaired = _said("repair", path, "-o", str(Path(elsewhere, "repaired.spectrace")))


def _said(command: str, path: Path, *more: str) -> str:
    """What a command says of a trace, its table left out: exit code, then lines."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([command, str(path), *more])
    name = str(path)
    lines = [line for line in out.getvalue().splitlines() if command != "stats" or line.startswith(_TOLD)]
    return "\n".join([str(code), *err.getvalue().splitlines(), *lines]).replace(name, path.name)


_TOLD = ("/", "ended early", "lost", "problem")
"""How the lines of `stats` begin that say what is wrong."""


class Nursery:
    """The process that forks hosts."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.reliability.nursery"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        word, _, ids = self._line().partition(" ")
        assert word == "ready"
        self.expected: list[int] = json.loads(ids)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def run(self, fault: Fault, folder: Path) -> Outcome:
        """Lets one fault happen.

        Args:
            fault: which.
            folder: an empty one, for the host.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"{fault.name} {folder}\n")
        self._process.stdin.flush()
        pid = int(self._line().removeprefix("pid "))
        with _deadline(pid):
            ended = int(self._line().removeprefix("ended "))
        return measured(fault, folder, ended, self.expected)

    def close(self) -> None:
        """Ends it."""
        with self._process:
            pass  # closes its input, which ends it


@contextmanager
def _deadline(pid: int) -> Iterator[None]:
    timer = threading.Timer(DEADLINE_S, os.kill, (pid, signal.SIGKILL))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def folder_for(fault: Fault, parent: Path) -> Iterator[Path]:
    """Makes the folder of a host, a small file system where it must be one.

    Raises:
        OSError: that needs rights or programs that are not here.
    """
    folder = parent / fault.name
    folder.mkdir()
    if not fault.needs_disk:
        yield folder
        return
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"a small file system cannot be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
