"""A process that forks recorders and is told what to record; `test_kill.py` kills them.

Reads one job a line, ``path how flush_interval``, forks a recorder for it, says ``pid N`` and waits until
it is dead. The recorder says after every few steps how many it has given, and whether they are flushed.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np

from spectrace.format.writer import TraceWriter

STEPS_AT_ONCE = 8
"""Steps between two reports."""


def fields_of(number: int) -> dict[str, Any]:
    """The step that has a number; every value follows from it."""
    return {
        "request": f"r{number % 3}",
        "step": number,
        "position": 2 * number,
        "proposal_ids": [number, number + 1, number + 2],
        "num_accepted": number % 4,
        "emitted_ids": [number] * (number % 4 + 1),
        "draft_logprobs": [-0.5 * number, -1.0, -2.0],
    }


def arrays_of(first: int, num_rows: int) -> dict[str, Any]:
    """The same steps as arrays."""
    number = np.arange(first, first + num_rows)
    accepted = number % 4
    half = -0.5 * number
    return {
        "request": [f"r{n % 3}" for n in number.tolist()],
        "step": number,
        "position": 2 * number,
        "proposal_ids": number[:, None] + np.arange(3),
        "num_accepted": accepted,
        "emitted_ids": (np.repeat(number, accepted + 1), accepted + 1),
        "draft_logprobs": np.stack([half, np.full(num_rows, -1.0), np.full(num_rows, -2.0)], 1),
    }


def record(path: str, how: str, flush_interval: float) -> None:
    """Records until killed.

    Args:
        path: file to create.
        how: ``step`` or ``steps``, with ``+flush`` to flush before each report.
        flush_interval: of the writer.
    """
    writer = TraceWriter(path, {}, flush_interval=flush_interval)
    given = 0
    while True:
        if how.startswith("steps"):
            writer.steps(STEPS_AT_ONCE, arrays_of(given, STEPS_AT_ONCE))
        else:
            for number in range(given, given + STEPS_AT_ONCE):
                writer.step(fields_of(number))
        given += STEPS_AT_ONCE
        if how.endswith("+flush"):
            if writer.flush():
                say(f"flushed {given} {time.monotonic()}")
        else:
            say(f"given {given} {time.monotonic()}")
            time.sleep(0.001)


def say(line: str) -> None:
    """One line to whoever listens, in one piece."""
    os.write(1, f"{line}\n".encode())


def main() -> None:
    """Serves jobs until the input ends."""
    say("ready")
    for job in sys.stdin:
        path, how, flush_interval = job.split()
        child = os.fork()
        if child == 0:
            record(path, how, float(flush_interval))
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    main()
