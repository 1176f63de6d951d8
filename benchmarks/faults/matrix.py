"""Runs the lists, asks `diagnose`, counts what was named: results that can be stored and shown."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import spectrace
from benchmarks.faults.faults import FAULTS, Fault
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


def run(case: Fault | Healthy, seed: int) -> Result:
    """Records one run and diagnoses it."""
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        rig, out = Rig(seed, Path(folder)), Path(folder) / "run.spectrace"
        case.record(rig, out)
        with spectrace.open(out) as trace:
            if case.control is None:
                found = diagnose(trace)
            else:
                beside = Path(folder) / "control.spectrace"
                case.control(rig, beside)
                with spectrace.open(beside) as control:
                    found = diagnose(trace, control=control)
    expected = case.expected if isinstance(case, Fault) else None
    return Result(
        name=case.name,
        seed=seed,
        verdict=_judged(found, expected),
        findings=[(finding.strength.value, finding.id) for finding in found.findings],
        steps=found.measured["proposals"],
        alpha1=found.measured["alpha1"].value,
        seconds=time.process_time() - started,
    )


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
    for case in (*FAULTS, *HEALTHY):
        if not wanted or case.name.startswith(wanted):
            yield case


def append(path: Path, result: Result) -> None:
    """Stores a result as a line of JSON."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def stored(path: Path) -> dict[tuple[str, int], Result]:
    """Results of a run that was interrupted."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    results = [Result(**json.loads(line)) for line in lines]
    return {(result.name, result.seed): result for result in results}
