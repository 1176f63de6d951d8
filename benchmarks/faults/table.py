"""Results as Markdown: fault by verdict, and the alarms on healthy runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.faults.faults import FAULTS, Fault
from benchmarks.faults.healthy import HEALTHY, Healthy
from benchmarks.faults.matrix import Result

VERDICTS = ("top", "found", "wrong", "missed")


def markdown(results: Sequence[Result]) -> str:
    """The whole page."""
    of: dict[str, list[Result]] = {}
    for result in results:
        of.setdefault(result.name, []).append(result)
    faults = [(fault, of[fault.name]) for fault in FAULTS if fault.name in of]
    healthy = [(case, of[case.name]) for case in HEALTHY if case.name in of]
    return "\n".join([*_summary(faults, healthy), "", *_faults(faults), "", *_healthy(healthy), ""])


def _summary(
    faults: Sequence[tuple[Fault, Sequence[Result]]], healthy: Sequence[tuple[Healthy, Sequence[Result]]]
) -> list[str]:
    runs = [result for _, own in faults for result in own]
    structural = [result for fault, own in faults if fault.kind == "structural" for result in own]
    well = [result for _, own in healthy for result in own]
    alarms = [result for result in well if result.verdict == "alarm"]
    seconds = sum(result.seconds for result in [*runs, *well])
    return [
        "| what | count | share |",
        "|---|---|---|",
        _share("structural faults named as the top finding", _count(structural, "top"), len(structural)),
        _share("all faults named as the top finding", _count(runs, "top"), len(runs)),
        _share("all faults named at all", _count(runs, "top") + _count(runs, "found"), len(runs)),
        _share("healthy runs with a certain or strong finding", len(alarms), len(well)),
        "",
        f"{len(faults)} faults, {len(healthy)} kinds of healthy runs, {len(runs) + len(well)} runs, "
        f"{seconds / 60:.1f} minutes of processor time.",
    ]


def _share(what: str, part: int, whole: int) -> str:
    return f"| {what} | {part} of {whole} | {part / whole if whole else 0:.1%} |"


def _count(results: Sequence[Result], verdict: str) -> int:
    return sum(result.verdict == verdict for result in results)


def _faults(faults: Sequence[tuple[Fault, Sequence[Result]]]) -> list[str]:
    lines = [
        "| fault | what is broken | kind | must be named | runs | top | found | wrong name | missed "
        "| strength | alpha1 | where not on top |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for fault, results in faults:
        counts = [str(_count(results, verdict) or "") for verdict in VERDICTS]
        cells = [fault.name, fault.breaks, fault.kind, " or ".join(f"`{id_}`" for id_ in fault.expected)]
        cells += [str(len(results)), *counts, _strengths(results), _alphas(results), _instead(results)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _strengths(results: Sequence[Result]) -> str:
    """How sure the findings on top are that name the fault."""
    return ", ".join(dict.fromkeys(r.findings[0][0] for r in results if r.verdict == "top"))


def _alphas(results: Sequence[Result]) -> str:
    return ", ".join(f"{result.alpha1:.2f}" for result in results if result.alpha1 is not None)


def _instead(results: Sequence[Result]) -> str:
    """What stood first where the fault did not."""
    tops = Counter(
        f"`{result.findings[0][1]}` ({result.findings[0][0]})" if result.findings else "nothing"
        for result in results
        if result.verdict != "top"
    )
    return ", ".join(tops)


def _healthy(healthy: Sequence[tuple[Healthy, Sequence[Result]]]) -> list[str]:
    lines = ["| healthy run | runs | false alarms | steps | alpha1 | findings |", "|---|---|---|---|---|---|"]
    for case, results in healthy:
        findings = Counter(f"`{id_}` ({strength})" for r in results for strength, id_ in r.findings)
        steps = ", ".join(str(result.steps) for result in results)
        alarms = _count(results, "alarm")
        cells = [case.name, str(len(results)), str(alarms), steps, _alphas(results), ", ".join(findings)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
