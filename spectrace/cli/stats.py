"""`spectrace stats`: counts and every named metric of a run, from the index alone.

Costs the same for a thousand and for ten million steps; only `--by` and `--explain` read the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import spectrace
from spectrace.analysis.acceptance import (
    BY_DEPTH,
    METRICS,
    PositionCounts,
    accept_length,
    acceptance_rate,
    own_count,
    per_position,
)
from spectrace.analysis.timing import PHASES, mean_ns, speedup, token_ns
from spectrace.cli.arguments import TRACE, json_option
from spectrace.cli.output import print_json, print_lines, shown, table
from spectrace.cli.verdicts import sampled_lines, simulated_lines, wrapped
from spectrace.format.counts import Counts
from spectrace.format.fields import REQUIRED
from spectrace.format.figures import count_of, number
from spectrace.format.reader import STATES
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace import Run, Trace

_MAX_TEXT = 200
"""Longest text of a header that is shown, characters."""
LEGEND = (
    "A proposal is a step with draft tokens; accepted and drafted count draft tokens,",
    "accept length adds the target's own token, one per proposal. Per position:",
    "unconditional = accepted / proposals, given proposed = accepted / proposed,",
    "conditional = accepted / proposals that accepted all before and proposed here.",
)


@click.command("stats")
@click.argument("traces", metavar="TRACE...", type=TRACE, nargs=-1, required=True)
@click.option(
    "--by",
    type=click.Choice(["request", "segment", "context", "batch_row"]),
    help="A line per group: reads every step.",
)
@click.option("--explain", metavar="X", help="Name the formula that gives X, a number printed elsewhere.")
@json_option("one JSON object")
def command(traces: tuple[Path, ...], by: str | None, explain: str | None, as_json: bool) -> None:
    """Print counts and every named metric of a run.

    Several TRACEs are the files of one run: its ranks, or the segments of a flight recorder.

    \b
    spectrace stats run.spectrace --by context     # accept length by committed length, in powers of two
    spectrace stats run.spectrace --explain 2.31   # an engine printed this: which formula is it?
    """  # noqa: D301 (click wants a real backspace)
    # Only these two read steps: without them the rules are not loaded.
    from spectrace.cli.breakdown import by_groups, group_lines, request_means
    from spectrace.cli.explanation import explanation, explanation_lines, to_mapping

    with spectrace.open(traces) as trace:
        explained = None if explain is None else explanation(trace, explain)
        groups = None if by is None else by_groups(trace, by)
        if as_json:
            more: dict[str, Any] = {}
            if groups is not None:
                more[f"by_{by}"] = groups
                more |= {"mean_of_requests": request_means(groups)} if by == "request" else {}
            if explained is not None:
                more["explain"] = to_mapping(explained)
            print_json({**summary(trace), **more})
            return
        if groups is None and explained is None:
            print_summary(trace)
            return
        print_lines(_brief_head(trace))
        if by is not None and groups is not None:
            print_lines(["", *group_lines(by, groups)])
        if explained is not None:
            print_lines(["", *explanation_lines(explained, visible(explain or ""))])


def print_summary(trace: Trace) -> None:
    """Prints what `stats` prints without options; `view` and `demo` do so where there is no terminal."""
    print_lines(_text(trace, trace.counts))


def summary(trace: Trace) -> dict[str, Any]:
    """The same as one JSON object; a metric that cannot be computed is null."""
    counts = trace.counts
    baseline = trace.run.baseline
    return {
        "paths": [str(path) for path in trace.paths],
        "state": trace.state,
        "problems": list(trace.problems),
        "gaps": [{"lost": gap.lost, "reason": gap.reason} for gap in trace.gaps],
        "requests": len(trace.requests),
        "counts": counts.to_mapping(),
        "metrics": {metric.name: metric.value(counts) for metric in METRICS},
        "positions": [_position(entry) for entry in per_position(counts)],
        "times": {
            **{f"mean_{phase}": mean_ns(counts, phase) for phase in PHASES},
            "token_ns": token_ns(counts),
            "baseline": baseline,
            "speedup": speedup(counts, baseline),
        },
    }


# --- as text ---------------------------------------------------------------------------------------


def _text(trace: Trace, counts: Counts) -> Iterator[str]:
    yield from _head(trace)
    yield ""
    yield from _counts(trace, counts)
    yield ""
    for metric in METRICS:
        if metric is BY_DEPTH and BY_DEPTH.value(counts) in (None, acceptance_rate(counts)):
            continue  # chains, or sums: it says nothing new
        name = metric.name.replace("_", " ")
        yield f"{name:<27}{number(metric.value(counts)):>10}  {metric.formula}"
    if own := own_count(counts):
        yield from ("", *wrapped("", f"The engine's own count: {own}."))
    yield ""
    yield from _position_table(counts)
    if counts.timed:
        yield ""
        yield from _times(trace, counts)
    yield ""
    yield from LEGEND


def _head(trace: Trace) -> Iterator[str]:
    """What was opened, what ran, and what is wrong with the file."""
    state = STATES[trace.state]
    if len(trace.paths) == 1:
        yield f"{shown(trace.paths[0])}: {state}"
    else:
        yield from map(shown, trace.paths)
        yield f"{len(trace.paths)} files, shown as one run: {state}"
    if facts := [fact for fact in _facts(trace.run) if fact]:
        yield visible(", ".join(facts), limit=_MAX_TEXT)
    for role, model in (("target", trace.run.target), ("draft", trace.run.draft)):
        if model is not None and model.id is not None:
            yield f"{role:<6}  {visible(model.id, limit=_MAX_TEXT)}"
    if trace.run.created is not None:
        yield f"recorded {visible(trace.run.created, limit=_MAX_TEXT)}"
    yield from _warnings(trace)
    yield from sampled_lines(trace.run)
    yield from simulated_lines(trace.run)


def _brief_head(trace: Trace) -> Iterator[str]:
    """What was opened and its usual number, above an answer to one question."""
    counts = trace.counts
    name = shown(trace.paths[0]) if len(trace.paths) == 1 else f"{len(trace.paths)} files"
    length = number(accept_length(counts))
    yield f"{name}: {count_of(counts.proposals, 'proposal')}, accept length {length}"
    if trace.state != "closed":
        yield STATES[trace.state]
    yield from _warnings(trace)
    yield from sampled_lines(trace.run)
    yield from simulated_lines(trace.run)


def _warnings(trace: Trace) -> Iterator[str]:
    """What is wrong with the file."""
    ended = ended_early(trace.run)
    if ended is not None:
        yield f"ended early: {visible(ended, limit=_MAX_TEXT)}"
    for gap in trace.gaps:
        yield f"lost: {number(gap.lost)} steps, {visible(gap.reason, limit=_MAX_TEXT)}"
    unknown = {} if trace.run.capture is None else trace.run.capture.unavailable
    for reason in dict.fromkeys(unknown[name] for name in REQUIRED if name in unknown):
        names = ", ".join(name for name in REQUIRED if unknown.get(name) == reason)
        yield f"not known: {names}: {visible(reason, limit=_MAX_TEXT)}"
    if (trace.run.packed or {}).get("is_part") is True:
        yield "a part of a run: the numbers are of these steps; diagnose and report give the whole run's"
    for problem in trace.problems:
        yield f"problem: {visible(problem)}"


def ended_early(run: Run) -> str | None:
    """Why the recorder recorded no more steps although the run went on, where it did so."""
    reason = None if run.capture is None else run.capture.unavailable.get("steps")
    return None if reason is None else str(reason)


def _facts(run: Run) -> Iterator[str | None]:
    """How it ran, in the words of the header."""
    yield run.method
    yield None if run.verification is None else run.verification.rule
    if run.engine is not None:
        yield " ".join(word for word in (run.engine.name, run.engine.version) if word)


def _counts(trace: Trace, counts: Counts) -> Iterator[str]:
    rows = (
        ("requests", number(len(trace.requests)), ""),
        (
            "steps",
            number(counts.steps),
            f"proposals {number(counts.proposals)}, with a rejection {number(counts.rejected)}",
        ),
        ("drafted tokens", number(counts.drafted), ""),
        ("accepted tokens", number(counts.accepted), ""),
        ("emitted tokens", number(counts.emitted), ""),
        ("final kinds", "", _tally(counts.final_kinds)),
        ("stops", "", _tally(counts.stops)),
        ("malformed steps", number(counts.malformed), "accepted more than they proposed"),
    )
    for name, value, note in rows:
        if (name == "malformed steps" and not counts.malformed) or not (value or note):
            continue
        yield f"{name:<27}{value:>10}  {note}".rstrip()


def _position_table(counts: Counts) -> Iterator[str]:
    heads = ["position", "proposed", "accepted", "unconditional", "given proposed", "conditional"]
    rows = [
        [
            str(entry.position),
            number(entry.proposed),
            number(entry.accepted),
            number(entry.unconditional),
            number(entry.given_proposed),
            number(entry.conditional),
        ]
        for entry in per_position(counts)
    ]
    return table(heads, rows)


def _times(trace: Trace, counts: Counts) -> Iterator[str]:
    for phase in PHASES:
        name = f"mean {phase.removesuffix('_ns')} time"
        yield f"{name:<27}{_milliseconds(mean_ns(counts, phase)):>10}  ms per proposal"
    each = _milliseconds(token_ns(counts))
    yield f"{'time per token':<27}{each:>10}  ms: mean step time / emitted per proposal"
    baseline = trace.run.baseline
    gain = speedup(counts, baseline)
    if baseline is not None and gain is not None:
        plain = _milliseconds(baseline["token_ns"])
        yield f"{'speedup':<27}{number(gain):>10}  times: {plain} ms without speculation"


def _position(entry: PositionCounts) -> dict[str, Any]:
    return {
        "position": entry.position,
        "proposed": entry.proposed,
        "reached": entry.reached,
        "accepted": entry.accepted,
        "unconditional": entry.unconditional,
        "given_proposed": entry.given_proposed,
        "conditional": entry.conditional,
    }


def _tally(tally: Mapping[str, int]) -> str:
    return ", ".join(f"{visible(word, limit=40)} {number(count)}" for word, count in tally.items())


def _milliseconds(nanoseconds: float | None) -> str:
    return number(None if nanoseconds is None else nanoseconds / 1e6)
