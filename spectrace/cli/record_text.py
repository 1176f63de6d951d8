"""What `spectrace record` says of a recording at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spectrace.cli.output import shown
from spectrace.cli.stats import ended_early, summary
from spectrace.cli.verdicts import wrapped
from spectrace.format.figures import number
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace import Trace

_NEXT = {
    "self-draft": "spectrace record --control predictable-text --draft DRAFT, then your own prompts",
    "predictable-text": "spectrace record --control self-draft, which rules the engine out or in",
    "no-draft": "record the same prompts with the draft, then spectrace diagnose THAT --control {name}",
}
"""Control -> what to do behind it."""


def outcome(trace: Trace, states: Path | None = None) -> list[str]:
    """What a recording says at its end.

    Args:
        trace: what was recorded.
        states: file of raw states beside it, where they were asked for.
    """
    found = summary(trace)
    metrics, times, name = found["metrics"], found["times"], shown(trace.paths[-1])
    lines = [
        f"{name}: {number(found['counts']['steps'])} steps, {number(found['requests'])} requests, "
        f"{number(trace.size_bytes)} bytes",
        f"accept length {number(metrics['accept_length'])}, alpha1 {number(metrics['alpha1'])}",
    ]
    if times["speedup"] is not None:
        lines.append(f"{number(times['speedup'])} times as fast as without speculation")
    lines += _comparison(trace)
    if states is not None and states.exists():
        lines.append(f"raw states: {shown(states)}, as private as the text itself")
    lines += [f"problem: {visible(problem)}" for problem in trace.problems]
    if trace.run.control in _NEXT:
        what_next = _NEXT[trace.run.control].format(name=name)
        return [*lines, *control_lines(trace), *wrapped("next: ", what_next)]
    return [*lines, f"why:  spectrace diagnose {name}", f"next: spectrace view {name}"]


def lost_sentence(trace: Trace) -> str | None:
    """What a recording lacks of the run; None when it is whole."""
    lost = sum(gap.lost for gap in trace.gaps)
    if lost:
        return f"{number(lost)} of {number(len(trace) + lost)} steps lost: {_reasons(trace)}"
    ended = ended_early(trace.run)
    if ended is not None:
        return f"later steps are not recorded: {visible(ended, limit=200)}"
    return None if trace.state == "closed" else "the trace was not closed: its last steps may be lost"


def _reasons(trace: Trace) -> str:
    return ", ".join(dict.fromkeys(visible(gap.reason, limit=80) for gap in trace.gaps))


def control_lines(trace: Trace) -> Iterator[str]:
    """What a control rules out or shows."""
    from spectrace.analysis.diagnosis.control_runs import control_of
    from spectrace.analysis.diagnosis.verdict import NotChecked

    found = control_of(trace)
    if isinstance(found, NotChecked):
        yield from wrapped("open: ", f"{found.reason}; {found.how}")
    elif found is not None:
        yield from wrapped("shows: ", found.summary)


def _comparison(trace: Trace) -> list[str]:
    baseline = trace.run.baseline
    if baseline is None or "compared_tokens" not in baseline:
        return []
    found = difference(trace)
    if found is None:
        tokens = number(baseline["compared_tokens"])
        return [f"greedy output is the same without speculation: {tokens} tokens compared"]
    ours, theirs = (_token(trace, found.get(key)) for key in ("with_speculation", "without"))
    gap = found.get("logit_gap")
    return [
        f"DIFFERENT greedy output: prompt {found.get('prompt')}, new token {found.get('token')} is "
        f"{ours} with speculation, {theirs} without",
        "one of the two ended there"
        if gap is None
        else f"there the target prefers its own token by {gap:.4g} logits; near zero is a tie",
    ]


def difference(trace: Trace) -> Mapping[str, Any] | None:
    """The first greedy token that differs from plain generation."""
    found = (trace.run.baseline or {}).get("difference")
    return found if isinstance(found, Mapping) else None


def _token(trace: Trace, token_id: int | None) -> str:
    if token_id is None:
        return "the end"
    text = trace.token_text(token_id)
    return str(token_id) if text is None else f'{token_id} "{visible(text)}"'
