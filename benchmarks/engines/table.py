"""Traces of one pair of models -> a table in Markdown. Counts what `spectrace diff` finds; runs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import spectrace
from benchmarks.engines.runs import Run
from spectrace.analysis.comparison import Comparison, compare

_KINDS = ("emitted", "proposal", "target_pick", "decision")
_HEAD = (
    "engine", "tokens", "proposals", "target picks", "decisions", "states",
    "accepted of drafted, in proposals", "by the engine's own count", "`spectrace diff` says",
)  # fmt: skip


def markdown(runs: Sequence[Run]) -> str:
    """A table per method, its first run above those compared with it; what the methods share below."""
    methods: dict[str, list[Run]] = {}
    for run in runs:
        methods.setdefault(run.method, []).append(run)
    lines = []
    for method, own in methods.items():
        lines += [f"### {method}", "", f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD)]
        lines += [f"| {' | '.join(_row(run, own[0]))} |" for run in own]
        lines.append("")
    return "\n".join([*lines, *_texts([own[0] for own in methods.values()]), ""])


def _row(run: Run, first: Run) -> Iterator[str]:
    yield run.engine
    with spectrace.open(run.trace) as trace, spectrace.open(first.trace) as against:
        found = None if run is first else compare(against, trace)
        yield from ("",) * 5 if found is None else _beside(found)
        yield _counted(trace)
        yield _reported(run.trace, trace)
        yield "" if found is None else "; ".join(_verdict(found))


def _beside(found: Comparison) -> Iterator[str]:
    """What is the same, of what could be compared."""
    for name in _KINDS:
        kind = found.first_differences.kinds[name]
        yield f"{kind.compared - kind.differing} of {kind.compared}" if kind.compared else "none"
    own = [match for match in found.taps if match.side == "B"]
    yield ", ".join(f"B({m.tap}) {m.n if m.is_same else 'differs'}" for m in own) or "none"


def _verdict(found: Comparison) -> Iterator[str]:
    """The command's own words: what differs first, and whether a tie explains it."""
    if found.is_equal:
        yield "nothing differs"
        return
    differences = found.first_differences
    for name, kind in differences.kinds.items():
        if kind.differing:
            only = f", {differences.only_length} only in length" if name == "proposal" else ""
            yield f"{kind.differing} {name}s differ{only}"
    if differences.ends_earlier:
        yield f"{differences.ends_earlier} texts end earlier"
    if found.fork is not None:
        yield f"texts part: {found.fork.verdict}, gap {found.fork.gap}"


def _counted(trace: spectrace.Trace) -> str:
    steps = [step for step in trace if step.proposal_ids]
    accepted = sum(step.num_accepted or 0 for step in steps)
    return f"{accepted} of {sum(len(step.proposal_ids) for step in steps)}, in {len(steps)}"


def _reported(path: Path, trace: spectrace.Trace) -> str:
    """What the engine itself counted: in the answers it gave, or step by step where the trace has that."""
    answers = path.with_name("outputs.json")
    if answers.exists():
        requests = json.loads(answers.read_text())["requests"].values()
        accepted, drafted = ([n for own in requests for n in own[name]] for name in ("accepted", "drafted"))
        return f"{sum(accepted)} of {sum(drafted)}, in {len(drafted)}"
    steps = [step for step in trace if step.proposal_ids]
    told = [step.num_accepted_reported for step in steps if step.num_accepted_reported is not None]
    return f"{sum(told)}, in {len(told)}" if told else "none"


def _texts(runs: Sequence[Run]) -> Iterator[str]:
    """Whether the methods commit the same texts: each is the target's own."""
    a, *rest = runs
    for b in rest:
        with spectrace.open(a.trace) as one, spectrace.open(b.trace) as other:
            kind = compare(one, other).first_differences.kinds["emitted"]
        yield (
            f"Texts of {a.method} ({a.engine}) and {b.method} ({b.engine}): "
            f"{kind.compared - kind.differing} of {kind.compared} tokens are the same."
        )
