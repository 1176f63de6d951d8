"""What every benchmark shares: interleaved timing, medians, the machine in words, and the table of results.

Ratios are made of measurements taken in turns within one run, so that a machine that is slow for a while
is slow for both sides. Refuses to know what is being measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

Case = Callable[[], object]


def options(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the option that every benchmark has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the work or less: is it sound at all?"
    )
    return parser


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for large files, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="spectrace-bench-") as folder:
        yield Path(folder)


def seconds(case: Case) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    case()
    return time.perf_counter() - start


def processor_seconds(case: Case) -> float:
    """Processor seconds of one call on this thread: what others do on this machine is not its cost."""
    start = time.thread_time()
    case()
    return time.thread_time() - start


def interleaved(
    cases: Mapping[str, Case], rounds: int, timed: Callable[[Case], float] = seconds
) -> dict[str, list[float]]:
    """Measures all cases in turns; every second round goes backwards, so that no case is always first.

    Args:
        cases: what to measure, by name.
        rounds: measurements of each.
        timed: how one call is measured.
    """
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds):
        names = list(cases) if number % 2 == 0 else [*cases][::-1]
        for name in names:
            found[name].append(timed(cases[name]))
    return found


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Median of the pairwise ratios of two interleaved series."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def quantile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# --- the table -------------------------------------------------------------------------------------


class Results:
    """Prints one Markdown row per result, with its target and whether it was met.

    Args:
        title: heading above the table.
    """

    def __init__(self, title: str) -> None:
        print(
            f"\n### {title}\n\n{machine()}\n\n| what | measured | target | met |\n|---|---|---|---|",
            flush=True,
        )

    def at_most(self, what: str, value: float, target: float, form: str = "{:.2f}") -> None:
        """A result that should not exceed its target."""
        self._row(
            what, form.format(value), f"≤ {form.format(target)}", "yes" if value <= target else "**no**"
        )

    def at_least(self, what: str, value: float, target: float, form: str = "{:.2f}") -> None:
        """A result that should reach its target."""
        self._row(
            what, form.format(value), f"≥ {form.format(target)}", "yes" if value >= target else "**no**"
        )

    def note(self, what: str, value: str) -> None:
        """A figure that has no target."""
        self._row(what, value, "", "")

    def _row(self, *cells: str) -> None:
        print(f"| {' | '.join(cells)} |", flush=True)


_PACKAGES = ("numpy", "msgpack", "textual", "torch", "transformers")


def machine() -> str:
    """The machine in words: no names, no paths."""
    found = [f"{name} {known}" for name in _PACKAGES if (known := _version(name))]
    parts = [
        _processor(),
        f"{os.cpu_count()} cores, {_memory_gib():.0f} GiB",
        f"{platform.system()} {platform.release().split('-')[0]}",
        f"Python {platform.python_version()}",
        *found,
    ]
    return ", ".join(part for part in parts if part) + "."


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> float:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return float("nan")
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def memory_mb(process: int | str, line: str) -> float:
    """A line of a process's status in MB: VmRSS now, VmHWM at its largest. Linux only.

    `getrusage` will not do: a child starts with the peak of the process that started it.
    """
    for found in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
        if found.startswith(line + ":"):
            return int(found.split()[1]) / 1e3
    raise KeyError(line)


def has_room(folder: Path, num_bytes: int) -> bool:
    """Whether a file of this size and half as much again fit."""
    return shutil.disk_usage(folder).free > 1.5 * num_bytes
