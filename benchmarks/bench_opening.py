"""Does a long trace cost more to open than a short one?

`spectrace.open`, with its index and as a killed recorder leaves it; the `stats` command; the first screen of
`view` in a pseudo-terminal and its memory; and a jump to any step. Files of 1,000, 1,000,000 and 10,000,000
steps; `--largest` takes another number for the last.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from measure import (
    Results,
    has_room,
    interleaved,
    median_ratio,
    memory_mb,
    options,
    quantile,
    scratch,
    seconds,
)
from synthetic import index_offset, write_live, write_long
from terminal import Terminal

import spectrace
from spectrace.format.records import present_fields
from spectrace.format.repair import repair

SPECTRACE = [sys.executable, "-m", "spectrace"]
ROW_BYTES = 130
WALK = ["G", "g", "1234567G", "e", "e", "E", "\x1b[6~", "\x1b[6~", "\x1b[5~", "j", "k", "G", "k"]
"""Keys that go through the file: end, start, a step, divergences, pages."""


def main() -> None:
    """Prints the table."""
    parser = options(__doc__)
    parser.add_argument("--largest", type=int, metavar="STEPS", help="steps of the largest file")
    arguments = parser.parse_args()
    largest = arguments.largest or (1_000_000 if arguments.quick else 10_000_000)
    rounds = 5 if arguments.quick else 15
    results = Results("Opening, jumping, viewing")
    with scratch() as folder:
        if not has_room(folder, largest * ROW_BYTES):
            raise SystemExit(f"{largest:,} steps need {1.5 * largest * ROW_BYTES / 1e9:.1f} GB of disk")
        paths = {}
        for rows in sorted({1_000, 1_000_000, largest}):
            paths[rows] = folder / f"{rows}.spectrace"
            write_long(paths[rows], rows)
        short, long = paths[1_000], paths[largest]
        for rows, path in paths.items():
            _open(results, f"{rows:,} steps", path)
            if rows > 1_000:
                _jump(results, f"{rows:,} steps, live", path, 1)
        _jump_packed(results, folder)
        _commands(results, short, long, largest, rounds)
        _memory(results, long, largest)
        for rows, path in paths.items():
            _open_crashed(results, f"{rows:,} steps", path)


def _open(results: Results, what: str, path: Path) -> None:
    times = [seconds(lambda: spectrace.open(path).close()) * 1e3 for _ in range(200)]
    results.at_most(
        f"open, {what} ({path.stat().st_size / 1e6:,.1f} MB), p50", median(times), 1.0, "{:.2f} ms"
    )


def _open_crashed(results: Results, what: str, path: Path) -> None:
    """Cuts the file shorter and shorter, as kills at different moments do, and opens it each time."""
    end = index_offset(path)
    draw = random.Random(7)
    cuts = sorted((end - draw.randrange(min(end // 2, 3 << 20)) for _ in range(40)), reverse=True)
    opened, counted = [], []
    for cut in cuts:
        os.truncate(path, cut)
        opened.append(seconds(lambda: spectrace.open(path).close()) * 1e3)
        counted.append(seconds(lambda: _counts(path)) * 1e3)
    results.at_most(f"open after a kill, {what}: slowest of 40 cuts", max(opened), 50, "{:.1f} ms")
    results.note(f"open and all counts after a kill, {what}: median", f"{median(counted):.1f} ms")


def _counts(path: Path) -> int:
    with spectrace.open(path) as trace:
        return trace.counts.accepted


def _jump(results: Results, what: str, path: Path, target: float) -> None:
    """From one step to any other, far away."""
    shown, whole = _jumps(path, _shown_fields), _jumps(path, present_fields)
    results.at_most(f"jump, {what}: what the list shows of the step, p50", median(shown), target, "{:.2f} ms")
    results.note(
        f"jump, {what}: p99; all fields of the step, p50",
        f"{quantile(shown, 0.99):.2f} ms; {median(whole):.2f} ms",
    )


def _jumps(path: Path, look: Callable[[spectrace.Step], object]) -> list[float]:
    """Milliseconds from a number to what is to be seen of the step."""
    draw = random.Random(7)
    times = []
    with spectrace.open(path) as trace:
        look(trace.steps[0])  # the first one reads the index
        for row in (draw.randrange(len(trace)) for _ in range(500)):
            start = time.perf_counter()
            look(trace.steps[row])
            times.append((time.perf_counter() - start) * 1e3)
    return times


def _shown_fields(step: spectrace.Step) -> tuple[object, ...]:
    return step.request, step.proposal_ids, step.num_accepted, step.target_ids, step.emitted_ids, step.step_ns


def _jump_packed(results: Results, folder: Path) -> None:
    live, packed = folder / "jump.spectrace", folder / "packed.spectrace"
    write_live(live, 200_000)
    repair(live, packed, compact=True)
    _jump(results, "200,000 steps, packed", packed, 3)


def _commands(results: Results, short: Path, long: Path, largest: int, rounds: int) -> None:
    found = interleaved(
        {
            "stats short": lambda: _run("stats", short),
            "stats long": lambda: _run("stats", long),
            "view short": lambda: _first_paint(short),
            "view long": lambda: _first_paint(long),
        },
        rounds,
    )
    for name, what in (("stats", "stats, whole process"), ("view", "view, first row on the screen")):
        ratio = median_ratio(found[f"{name} long"], found[f"{name} short"])
        times = " / ".join(f"{median(found[f'{name} {size}']) * 1e3:.0f} ms" for size in ("long", "short"))
        results.note(f"{what}: {largest:,} / 1,000 steps", times)
        results.at_most(f"{what}: {largest:,} / 1,000 steps", ratio, 1.2)


def _run(command: str, path: Path) -> None:
    subprocess.run([*SPECTRACE, command, str(path)], check=True, stdout=subprocess.DEVNULL)


def _first_paint(path: Path) -> None:
    """The first row of the list is on the screen; then the program is killed."""
    with Terminal([*SPECTRACE, "view", str(path)]) as terminal:
        terminal.wait_for("req-0000000")


def _memory(results: Results, path: Path, largest: int) -> None:
    if not Path("/proc/self/status").exists():
        results.note("memory of view", "not measured: it is read from /proc")
        return
    with Terminal([*SPECTRACE, "view", str(path)]) as terminal:
        terminal.wait_for("req-0000000")
        terminal.press("", quiet=2.0)
        first = memory_mb(terminal.pid, "VmHWM")
        for keys in WALK:
            terminal.press(keys)
        peak = memory_mb(terminal.pid, "VmHWM")
    results.note(f"view of {largest:,} steps: peak memory when it has opened", f"{first:.0f} MB")
    results.at_most(f"view of {largest:,} steps: peak memory after going about in it", peak, 200, "{:.0f} MB")


if __name__ == "__main__":
    main()
