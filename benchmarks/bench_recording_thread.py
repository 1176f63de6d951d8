"""What does a step cost the engine's thread?

`TraceWriter.steps` (arrays of B requests, or a function that returns them later, for arrays that nobody will
write into) and `TraceWriter.step` (one mapping) against `msgpack.packb` of the same steps as mappings, as a
recorder would do that writes one map per step, and against making those mappings first. Processor time of the
thread. The lean record has 13 fields, the full one what a recorder captures by default: 5 alternatives at
every position, entropies, gaps, 3 taps of 32 projections.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgpack
from measure import Case, Results, interleaved, median_ratio, options, scratch
from synthetic import Arrays, SyntheticEngine, records

from spectrace import TraceWriter

BATCHES = (1, 8, 32, 64, 128)
STEPS = 8
"""Different engine steps, given again and again."""
ROUNDS = 21
CALLS = 64
"""Calls of `steps` in one measurement, and fewer with many rows: the queue is short between two flushes."""
PAUSE = 0.05
"""Flush interval here, so that the writing thread seldom runs during a measurement."""


def main() -> None:
    """Prints the table."""
    arguments = options(__doc__).parse_args()
    rounds = 5 if arguments.quick else ROUNDS
    results = Results("Recording thread")
    for full in (False, True):
        for batch in BATCHES:
            with scratch() as folder:
                _measure(results, folder, batch, full, rounds)


def _measure(results: Results, folder: Path, batch: int, full: bool, rounds: int) -> None:
    engine = SyntheticEngine(batch, full=full)
    arrays = [engine.engine_step() for _ in range(STEPS)]
    with TraceWriter(folder / "run.spectrace", {}, flush_interval=PAUSE) as writer:

        def timed(case: Case) -> float:
            writer.flush()
            return _per_row(case, len(arrays) * batch)

        found = interleaved(_cases(writer, batch, arrays), rounds, timed)
        everything = _all_threads(writer, batch, arrays)
    _report(results, batch, full, found, everything)


def _cases(writer: TraceWriter, batch: int, arrays: list[Arrays]) -> dict[str, Case]:
    """The ways to give the same steps."""
    flat = [row for one in arrays for row in records(one)]

    def steps() -> None:
        for one in arrays:
            writer.steps(batch, one)

    def function() -> None:
        for one in arrays:
            writer.steps(batch, lambda one=one: (batch, one))  # type: ignore[misc]

    def step() -> None:
        for row in flat:
            writer.step(row)

    def packb() -> None:
        for row in flat:
            msgpack.packb(row)

    def building() -> None:
        for one in arrays:
            for row in records(one):
                msgpack.packb(row)

    return {
        "steps": steps,
        "function": function,
        "step": step,
        "packb": packb,
        "building and packb": building,
    }


def _per_row(case: Callable[[], object], num_rows: int) -> float:
    """Processor seconds per row on this thread: what others do on this machine is not its cost."""
    case()
    times = max(2, min(CALLS // STEPS, 1000 // num_rows))
    start = time.thread_time()
    for _ in range(times):
        case()
    return (time.thread_time() - start) / (times * num_rows)


def _all_threads(writer: TraceWriter, batch: int, arrays: list[Arrays]) -> list[float]:
    """Processor time of all threads per row, writing included."""
    found = []
    for _ in range(5):
        writer.flush()
        start = time.process_time()
        for _ in range(max(1, 64 // batch)):
            for one in arrays:
                writer.steps(batch, one)
        writer.flush()
        found.append((time.process_time() - start) / (max(1, 64 // batch) * len(arrays) * batch))
    return found


def _report(
    results: Results, batch: int, full: bool, found: dict[str, list[float]], everything: list[float]
) -> None:
    record = f"{'full' if full else 'lean'} record, B = {batch}"
    micro = {name: f"{median(values) * 1e6:.2f}" for name, values in found.items()}
    micro["all threads"] = f"{median(everything) * 1e6:.0f}"
    results.note(f"{record}: {' / '.join(micro)}", f"{' / '.join(micro.values())} µs a row")
    built = median_ratio(found["steps"], found["building and packb"])
    for name in ("steps", "function", "step") if batch == 1 else ("steps", "function"):
        ratio = median_ratio(found[name], found["packb"])
        if batch == 1:
            results.at_most(f"{record}: {name} / packb", ratio, 1.0)
        elif batch >= 32:
            results.at_most(f"{record}: {name} / packb", ratio, 1 / 20, "{:.3f}")
    if batch >= 32:
        results.at_most(f"{record}: steps / building and packb", built, 1 / 100, "{:.3f}")


if __name__ == "__main__":
    main()
