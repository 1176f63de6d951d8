"""How long until a reader sees a step that is being recorded?

A writer process records a step every 13 ms and writes down when; this process polls `Trace.refresh` and looks
at the clock when the step has appeared. Both read the same monotonic clock.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from measure import Results, options, quantile, scratch

import spectrace
from spectrace.errors import TraceError

POLL = 0.002
"""Seconds between two looks."""
PERIOD = 0.013
"""Seconds between two steps."""

WRITER = """
import sys, time
from spectrace import TraceWriter

path, count, period = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
with TraceWriter(path, {}) as writer:
    start = time.monotonic()
    for number in range(count):
        # Now and then a little off the beat, so that the writing thread is met at every phase.
        time.sleep(max(0.0, start + number * period + number % 11 * 0.001 - time.monotonic()))
        writer.step(request="r", step=number, position=number, proposal_ids=[1, 2, 3, 4, 5],
                    num_accepted=2, emitted_ids=[1, 2, 9], started_ns=time.monotonic_ns())
"""


def main() -> None:
    """Prints the table."""
    arguments = options(__doc__).parse_args()
    count = 200 if arguments.quick else 2_000
    results = Results(f"Following a live trace, {count:,} steps")
    with scratch() as folder:
        path = folder / "run.spectrace"
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(count), str(PERIOD)])
        latencies = _watch(path, count, writer)
        writer.wait()
    millis = {share: quantile(latencies, share) * 1e3 for share in (0.5, 0.99, 1.0)}
    results.note("step() to seen, p50 / largest", f"{millis[0.5]:.1f} ms / {millis[1.0]:.1f} ms")
    results.at_most("step() to seen, p99", millis[0.99], 20, "{:.1f} ms")


def _watch(path: Path, count: int, writer: subprocess.Popen[bytes]) -> list[float]:
    """Seconds from the call to the sight of each step."""
    trace = _opened(path)
    latencies: list[float] = []
    with trace:
        while len(latencies) < count:
            trace.refresh()
            now = time.monotonic_ns()
            for step in trace.steps[len(latencies) :]:
                assert step.started_ns is not None
                latencies.append((now - step.started_ns) / 1e9)
            if writer.poll() not in (None, 0):
                raise SystemExit("the writing process failed; its message is above")
            time.sleep(POLL)
    return latencies


def _opened(path: Path) -> spectrace.Trace:
    """The trace, as soon as its header is there."""
    for _ in range(5000):
        try:
            return spectrace.open(path)
        except TraceError:
            time.sleep(POLL)
    raise SystemExit("the writing process wrote nothing")


if __name__ == "__main__":
    main()
