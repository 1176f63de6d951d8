"""How fast is a question about every step?

One column of 1,000,000 steps, live and packed, against a Python loop over one msgpack map per step; and
`for step in trace`, as a script reads. Processor time, the files being in memory.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgpack
from measure import Results, interleaved, median_ratio, options, processor_seconds, scratch
from synthetic import write_live

import spectrace
from spectrace.format.jsonl import step_object
from spectrace.format.repair import repair


def main() -> None:
    """Prints the table."""
    arguments = options(__doc__).parse_args()
    rows = 100_000 if arguments.quick else 1_000_000
    results = Results(f"Scanning {rows:,} steps")
    with scratch() as folder:
        live, packed, maps = folder / "live.spectrace", folder / "packed.spectrace", folder / "maps.msgpack"
        write_live(live, rows)
        repair(live, packed, compact=True)
        _write_maps(live, maps)
        found = interleaved(
            {
                "maps": lambda: _sum_of_maps(maps),
                "live": lambda: _sum_of_column(live),
                "packed": lambda: _sum_of_column(packed),
                "steps, live": lambda: _sum_of_steps(live),
                "steps, packed": lambda: _sum_of_steps(packed),
            },
            rounds=3 if arguments.quick else 7,
            timed=processor_seconds,
        )
    for name in ("maps", "live", "packed"):
        results.note(f"one column, {name}", f"{median(found[name]) * 1e3:.0f} ms")
    results.at_least("maps / live", median_ratio(found["maps"], found["live"]), 7, "{:.1f} x")
    results.at_least("maps / packed", median_ratio(found["maps"], found["packed"]), 30, "{:.1f} x")
    for name in ("steps, live", "steps, packed"):
        speed = rows / median(found[name]) / 1e3
        results.at_least(f"for step in trace: one field of each, {name}", speed, 150, "{:.0f} k/s")


def _write_maps(trace: Path, out: Path) -> None:
    """One msgpack map per step, as a recorder would write that knows no columns."""
    with spectrace.open(trace) as steps, out.open("wb") as file:
        for step in steps:
            file.write(msgpack.packb(step_object(step)))


def _sum_of_maps(path: Path) -> int:
    with path.open("rb") as file:
        return sum(step["num_accepted"] for step in msgpack.Unpacker(file))


def _sum_of_column(path: Path) -> int:
    with spectrace.open(path) as trace:
        return int(trace.columns("num_accepted").sum())


def _sum_of_steps(path: Path) -> int:
    with spectrace.open(path) as trace:
        return sum(step.num_accepted for step in trace)


if __name__ == "__main__":
    main()
