"""Outcomes as the table of `recorders/RELIABILITY.md`."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.reliability.outcome import Outcome

HEAD = (
    "| fault | host's output | warning | readable afterwards | steps lost | test |\n|---|---|---|---|---|---|"
)


def rows(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each fault, of all its runs."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.fault.name, []).append(outcome)
    return [_row(runs) for runs in found.values()]


def _row(runs: Sequence[Outcome]) -> str:
    fault, last = runs[0].fault, runs[-1]
    cells = [fault.words, _output(last), _warning(last), _readable(last), _lost(runs), f"`[{fault.name}]`"]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _output(outcome: Outcome) -> str:
    cells = [outcome.output]
    if outcome.raised is not None:
        cells.append(f"{outcome.raised} comes out")
    if outcome.refused is not None:
        cells.append(f"the second is refused: {outcome.refused.partition(': ')[2]}")
    return "; ".join(cells)


def _warning(outcome: Outcome) -> str:
    if not outcome.warnings:
        return "none"
    sentence = outcome.warnings[0].partition(".spectrace: ")[2].rstrip()
    return sentence if len(outcome.warnings) == 1 else f"{len(outcome.warnings)} lines: {sentence}"


def _readable(outcome: Outcome) -> str:
    if not outcome.is_trace:
        return f"{outcome.state.partition(': ')[2]}; {_repair(outcome)}"
    if outcome.state == "closed" and not outcome.lost:
        return f"opens, closed; {_repair(outcome)}"
    said = [line for line in outcome.stats.splitlines()[1:] if not line.endswith(": closed")]
    words = "; ".join(line.removeprefix("run.spectrace: ") for line in said)
    return f"opens, {outcome.state}; `stats` says {words or 'nothing of it'}; {_repair(outcome)}"


def _repair(outcome: Outcome) -> str:
    if outcome.repaired_steps is None:
        return f"`repair` refuses, exit code {outcome.repaired.splitlines()[0]}"
    return f"`repair` saves {outcome.repaired_steps}"


def _lost(runs: Sequence[Outcome]) -> str:
    lost = sorted(run.lost for run in runs)
    span = f"{lost[0]}" if lost[0] == lost[-1] else f"{lost[0]} to {lost[-1]}"
    declared = ", declared" if runs[-1].lost and runs[-1].declared == runs[-1].lost else ""
    return f"{span} of {runs[-1].given:,}{declared}"
