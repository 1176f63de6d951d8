"""Runs the lists, asks `diagnose`, counts what was named."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import spectrace
from benchmarks.faults.faults import FAULTS, Fault, Record
from benchmarks.faults.healthy import HEALTHY, Healthy
from benchmarks.faults.rig import Rig
from spectrace.analysis.diagnosis import Diagnosis, Strength, diagnose


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What `diagnose` said of one run."""

    name: str
    seed: int
    verdict: str
    """Of a fault: top | found | wrong | missed. Of a healthy run: clean | alarm."""
    findings: Sequence[tuple[str, str]]
    """(strength, id), the most likely first."""
    steps: int
    alpha1: float | None
    seconds: float


def run(case: Fault | Healthy, seed: int, folder: Path) -> Result:
    """Records one run, unless the folder has it already, and diagnoses it."""
    trace_path, seconds = _recorded(case.record, seed, folder, case.name)
    with ExitStack() as opened:
        trace = opened.enter_context(spectrace.open(trace_path))
        control = None
        if case.control is not None:
            beside, more = _recorded(case.control, seed, folder, f"{case.name}-control")
            control, seconds = opened.enter_context(spectrace.open(beside)), seconds + more
        started = time.process_time()
        found = diagnose(trace, control=control)
        seconds += time.process_time() - started
    expected = case.expected if isinstance(case, Fault) else None
    return Result(
        name=case.name,
        seed=seed,
        verdict=_judged(found, expected),
        findings=[(finding.strength.value, finding.id) for finding in found.findings],
        steps=found.measured["proposals"],
        alpha1=found.measured["alpha1"].value,
        seconds=seconds,
    )


def _recorded(record: Record, seed: int, folder: Path, name: str) -> tuple[Path, float]:
    """The trace of a run, and the processor time that recording took."""
    out, cost = folder / f"{name}-{seed}.spectrace", folder / f"{name}-{seed}.seconds"
    if not cost.exists():
        out.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            started = time.process_time()
            record(Rig(seed, Path(scratch)), out)
            cost.write_text(f"{time.process_time() - started:.2f}", encoding="utf-8")
    return out, float(cost.read_text(encoding="utf-8"))


def _judged(found: Diagnosis, expected: Sequence[str] | None) -> str:
    ids = [finding.id for finding in found.findings]
    accused = [finding.id for finding in found.findings if finding.strength is not Strength.HINT]
    if expected is None:
        return "alarm" if accused else "clean"
    if ids and ids[0] in expected:
        return "top"
    if set(ids) & set(expected):
        return "found"
    return "wrong" if accused else "missed"


def chosen(names: Iterable[str]) -> Iterator[Fault | Healthy]:
    """The cases whose names begin with one of those given; all for none."""
    wanted = tuple(names)
    cases: list[Fault | Healthy] = [*FAULTS, *HEALTHY]
    for case in cases:
        if not wanted or case.name.startswith(wanted):
            yield case
