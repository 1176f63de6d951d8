"""The run on one page: causes found, acceptance, its course, what ran, what could not be seen.

Lays out what `analysis` says. The causes come first: they are what a reader opens the page for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spectrace.analysis.acceptance import (
    METRICS,
    SIMULATED_NOTE,
    accept_length,
    is_simulated,
    per_position,
    sampled,
)
from spectrace.analysis.diagnosis import Diagnosis
from spectrace.analysis.diagnosis.conclusion import (
    causes,
    cleared_of,
    nothing_found,
    smallness,
    telling,
)
from spectrace.analysis.diagnosis.what_now import what_now
from spectrace.analysis.diagnosis.words import words_of
from spectrace.analysis.series import Series, in_cells, series_of
from spectrace.format.counts import Counts
from spectrace.format.figures import count_of, number, percent
from spectrace.format.reader import STATES
from spectrace.format.records import Gap, Run
from spectrace.format.text import visible
from spectrace.tui.loader import Loader
from spectrace.tui.pages.missing import unavailable_fields
from spectrace.tui.pages.outcomes import (
    bound_lines,
    cleared_lines,
    diagnosis_of,
    finding_lines,
    not_checked_lines,
)
from spectrace.tui.pages.page import PageLine
from spectrace.tui.pages.paragraphs import bar, fitted, heading, labelled, line, paragraph
from spectrace.tui.pages.run_words import run_facts
from spectrace.tui.spans import Role, Span, left, right
from spectrace.tui.summary import bars

_POSITIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the page shows."""

    name: str
    state: str
    total: int
    requests: int
    run: Run
    counts: Counts
    series: Series
    diagnosis: Diagnosis
    gaps: Sequence[Gap]
    problems: Sequence[str]


def gather(loader: Loader, row: int) -> Overview:
    """Reads the index, and the first steps for the causes."""
    with loader.opened_again() as trace:
        return Overview(
            name=trace.paths[0].name,
            state=trace.state,
            total=len(trace),
            requests=len(trace.requests),
            run=trace.run,
            counts=trace.counts,
            series=series_of(trace),
            # Also what ) and ( go by.
            diagnosis=diagnosis_of(loader, trace),
            gaps=trace.gaps,
            problems=tuple(trace.problems),
        )


def lines(facts: Overview, width: int) -> list[PageLine]:
    """The page."""
    return fitted(_lines(facts, width), width)


def _lines(facts: Overview, width: int) -> Iterator[PageLine]:
    yield from heading("causes", width, is_first=True)
    yield from _findings(facts, width)
    yield from heading("acceptance", width)
    if facts.counts.proposals and is_simulated(facts.run):
        yield from paragraph(SIMULATED_NOTE, width, role="warning")
    yield from _metrics(facts.counts, width)
    yield from heading("accept length over the run", width)
    yield from _course(facts.series, facts.run, width)
    yield from heading("run", width)
    yield from _run(facts, width)
    yield from heading("not recorded", width)
    yield from _not_recorded(facts.run, width)
    yield from heading("cleared, and what could not be checked", width)
    yield from _answered(facts.diagnosis, width)


# --- causes --------------------------------------------------------------------------------------


def _findings(facts: Overview, width: int) -> Iterator[PageLine]:
    found = facts.diagnosis
    named, small = causes(found), smallness(found)
    for at, finding in enumerate(named):
        yield from finding_lines(finding, width, with_evidence=at == 0)
    if not named:
        yield from paragraph(nothing_found(found), width, role="strong")
    if sentence := what_now(found, facts.run, visible(facts.name, limit=80)):
        yield from labelled("next", sentence, width)
    if small is not None:
        yield from finding_lines(small, width)
    if found.look_first:
        yield from labelled("look first at", visible(", ".join(map(words_of, found.look_first))), width)
    for item in telling(found):
        yield from labelled("what if", visible(item.summary, limit=400), width)
    yield from bound_lines(facts.total, width, "spectrace diagnose")


def _answered(found: Diagnosis, width: int) -> Iterator[PageLine]:
    yield from cleared_lines(cleared_of(found), width)
    for item in found.counterfactuals:
        if item not in telling(found):
            yield from labelled("what if", visible(item.summary, limit=400), width)
    yield from not_checked_lines(found.not_checked, width)


# --- acceptance ----------------------------------------------------------------------------------


def _metrics(counts: Counts, width: int) -> Iterator[PageLine]:
    if not counts.proposals:
        yield from paragraph("No step has a proposal: there is nothing to accept.", width)
        return
    for metric in METRICS:
        name = metric.name.replace("_", " ")
        bonus = ", bonus included" if metric.name == "accept_length" else ""
        yield line(
            Span(left(name, 27) + " "),
            Span(right(number(metric.value(counts), 3), 7), "strong"),
            Span(f"  {metric.formula}{bonus}", "dim"),
        )
    yield from paragraph(
        "per position: share of all proposals, accepted of proposed, c given all before",
        width,
        role="dim",
    )
    cells = max(min(width - 48, 40), 0) if width >= 56 else 0
    entries = per_position(counts)
    for entry in entries[:_POSITIONS]:
        yield line(
            Span(right(str(entry.position), 3) + "  "),
            Span(bar(entry.unconditional, cells) + ("  " if cells else ""), "accepted"),
            Span(right(percent(entry.unconditional), 7), "strong"),
            Span(f"  {entry.accepted:,} of {entry.proposed:,}"),
            Span(f"  c {number(entry.conditional, 3)}", "dim"),
        )
    if len(entries) > _POSITIONS:
        yield line(Span(f"{len(entries) - _POSITIONS:,} deeper positions: spectrace stats lists them", "dim"))


def _course(series: Series, run: Run, width: int) -> Iterator[PageLine]:
    unknown = {} if run.capture is None else run.capture.unavailable
    reason = unknown.get("step") or unknown.get("num_accepted")
    if reason is not None:
        yield from paragraph(f"No course: {reason}.", width)
        return
    cells = [accept_length(cell) for cell in in_cells(series, width)]
    known = [value for value in cells if value is not None]
    if not known:
        yield from paragraph("No step has a proposal.", width)
        return
    low, high = min(known), max(known)
    yield line(Span(bars([None if value is None else (value - 1) / max(high - 1, 1e-9) for value in cells])))
    each = count_of(-(-series.total // len(cells)), "step")
    words = f"one column: about {each}; lowest {number(low, 2)}, highest {number(high, 2)} tokens per step"
    yield from paragraph(words, width, role="dim")


# --- what ran ------------------------------------------------------------------------------------


def _run(facts: Overview, width: int) -> Iterator[PageLine]:
    state: Role = "plain" if facts.state == "closed" else "warning"
    words = f"{count_of(facts.total, 'step')} of {count_of(facts.requests, 'request')}"
    yield from labelled("file", visible(facts.name, limit=80), width)
    yield from labelled("state", f"{STATES[facts.state]}; {words}", width, role=state)
    if (part := sampled(facts.run)) is not None:
        yield from labelled("sampled", f"{part} of the requests", width)
    for gap in facts.gaps[:8]:
        words = f"{count_of(gap.lost, 'step')}: {visible(gap.reason, limit=40)}"
        yield from labelled("lost", words, width, role="warning")
    for problem in facts.problems[:8]:
        yield from labelled("damaged", visible(problem, limit=400), width, role="warning")
    for name, text in run_facts(facts.run):
        yield from labelled(name, text, width)


def _not_recorded(run: Run, width: int) -> Iterator[PageLine]:
    found = unavailable_fields(run)
    if not found:
        yield from paragraph("The recorder names no field that it could not get.", width, role="dim")
    for names, reason in found:
        yield from paragraph(f"{names}: {reason}", width, hang=4)
