"""kill -9 at any moment: the file opens, says that it is unclosed, and holds every flushed step."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

import spectrace
from spectrace.format.records import present_fields
from tests.format import recording_child
from tests.format.recording_child import STEPS_AT_ONCE, fields_of
from tests.strategies import as_read, same

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class Nursery:
    """A process that forks recorders, and the pipe on which they report."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.jobs: IO[str] = process.stdin
        self.reports: IO[str] = process.stdout
        assert self.reports.readline() == "ready\n"

    def start(self, path: Path, how: str, flush_interval: float) -> int:
        """Starts a recorder; its process id."""
        self.jobs.write(f"{path} {how} {flush_interval}\n")
        self.jobs.flush()
        self.told: list[tuple[str, int, float]] = []
        while (pid := self._next()) is None:
            pass
        return pid

    def _next(self) -> int | None:
        """Takes one line of the reports; the process id if it is that."""
        word, number, *clock = self.reports.readline().split()
        if word == "pid":
            return int(number)
        self.told.append((word, int(number), float(clock[0])))
        return None

    def kill(self, pid: int) -> list[tuple[str, int, float]]:
        """Kills the recorder.

        Returns:
            Its reports: ``given`` or ``flushed``, number of steps, and the clock.
        """
        os.kill(pid, signal.SIGKILL)
        while (line := self.reports.readline().split()) != ["dead"]:
            self.told.append((line[0], int(line[1]), float(line[2])))
        return self.told

    def kill_one(
        self, path: Path, how: str, flush_interval: float, after: float
    ) -> list[tuple[str, int, float]]:
        """Lets one recorder work for a while, from its first report on, and kills it."""
        pid = self.start(path, how, flush_interval)
        while not self.told:
            self._next()
        time.sleep(after)
        return self.kill(pid)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """A process to fork recorders from; starting Python for each would take most of the time."""
    command = [sys.executable, recording_child.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()


def whole_steps(path: Path) -> int:
    """How many steps a killed recorder's file holds; each must be the one that was given."""
    with spectrace.open(path) as trace:
        assert trace.state == "unclosed"
        assert trace.end is None
        assert trace.gaps == []
        assert all("ends inside a frame" in problem for problem in trace.problems)
        for number, step in enumerate(trace):
            assert same(present_fields(step), as_read(fields_of(number)))
        assert trace.counts.steps == len(trace)
        return len(trace)


@pytest.mark.parametrize("how", ["step+flush", "steps+flush"])
def test_every_flushed_step_outlives_a_kill(nursery: Nursery, tmp_path: Path, how: str) -> None:
    """Killed twenty times at random moments, a recorder never loses a step that it had flushed."""
    moments = random.Random(how)
    for number in range(20):
        path = tmp_path / f"{number}.spectrace"
        reports = nursery.kill_one(path, how, 0.001, moments.uniform(0, 0.08))
        flushed = reports[-1][1]
        assert flushed <= whole_steps(path) <= flushed + STEPS_AT_ONCE


@pytest.mark.parametrize("how", ["step", "steps"])
def test_only_the_last_interval_is_lost_to_a_kill(nursery: Nursery, tmp_path: Path, how: str) -> None:
    """Without any flush, steps given well before the kill are in the file; none is invented."""
    moments = random.Random(how)
    # The interval is 5 ms; the rest is for a machine that lets the writing thread wait.
    slack = 0.3
    all_due = 0
    for number in range(8):
        path = tmp_path / f"{number}.spectrace"
        reports = nursery.kill_one(path, how, 0.005, slack + moments.uniform(0, 0.1))
        last_clock = reports[-1][2]
        due = max((given for _, given, clock in reports if clock < last_clock - slack), default=0)
        all_due += due
        assert due <= whole_steps(path) <= reports[-1][1] + STEPS_AT_ONCE
    assert all_due > 0
