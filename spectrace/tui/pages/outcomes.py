"""Causes found, cleared and not checked, as lines; and how many steps they were judged from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from spectrace.analysis.diagnosis import Cleared, Diagnosis, Finding, NotChecked, diagnose
from spectrace.analysis.diagnosis.verdict import Outcome
from spectrace.analysis.diagnosis.words import rule_of
from spectrace.format.reader import Trace
from spectrace.format.text import visible
from spectrace.tui.findings import page_of, said_of, shown_on
from spectrace.tui.loader import Loader
from spectrace.tui.pages.evidence import evidence_lines
from spectrace.tui.pages.page import PageLine
from spectrace.tui.pages.paragraphs import line, paragraph
from spectrace.tui.spans import Role, Span, left

FIRST_STEPS = 1_000_000
"""Steps that a page about the whole run reads; more would take longer than a reader waits."""
_ROLES: dict[str, Role] = {"certain": "rejected", "strong": "warning", "hint": "strong"}


def diagnosis_of(loader: Loader, trace: Trace) -> Diagnosis:
    """Every rule's answer from the first steps; asked once for each length of the trace.

    Raises:
        Stopped: nobody waits any more.
    """
    found: Diagnosis = loader.once(
        "diagnosis",
        len(trace),
        lambda: diagnose(trace, on_progress=loader.keep_going, first_steps=FIRST_STEPS),
    )
    return found


def finding_lines(
    finding: Finding, width: int, *, with_evidence: bool = False, own: str = ""
) -> Iterator[PageLine]:
    """Strength and id, what it is, its numbers, what to do, where to look; Enter goes there.

    Args:
        finding: what was found.
        width: cells.
        with_evidence: also its numbers.
        own: id of the page that the lines stand on: from there Enter goes to the step.
    """
    page = "" if page_of(finding) == own else page_of(finding)
    row = finding.steps[0] if finding.steps else None
    for one in _finding_lines(finding, width, page, with_evidence=with_evidence):
        yield replace(one, row=row, page=page, word=said_of(finding))


def _finding_lines(finding: Finding, width: int, page: str, *, with_evidence: bool) -> Iterator[PageLine]:
    label = Span(left(finding.strength.value, 8) + " ", _ROLES[finding.strength.value])
    yield line(label, Span(visible(finding.id, limit=60), "strong"))
    yield from paragraph(visible(finding.summary, limit=400), width, indent=9)
    if with_evidence:
        yield from evidence_lines(finding.evidence, width, indent=9)
    for witness in finding.witnesses[:1]:
        mark = Span(f"in step {witness.step:,}: ", "dim")
        yield from paragraph(visible(witness.words, limit=200), width, first=mark, indent=9, hang=11)
    advice = visible(finding.advice, limit=400)
    yield from paragraph(advice, width, first=Span("next: ", "dim"), indent=9)
    where = [f"first steps {', '.join(f'{step:,}' for step in finding.steps)}"] if finding.steps else []
    if page:
        where.append(f"{shown_on(finding)}, Enter goes there")
    elif finding.steps:
        where.append(f"Enter goes to {finding.steps[0]:,}")
    if where:
        yield from paragraph("; ".join(where), width, indent=9, role="dim")


def cleared_lines(items: Iterable[Cleared], width: int) -> Iterator[PageLine]:
    """Each rule once, with what its first answer saw."""
    first: dict[str, Cleared] = {}
    for item in items:
        first.setdefault(rule_of(item.id), item)
    for item in first.values():
        yield from cleared_line(item.id, item, width)


def cleared_line(name: str, item: Cleared, width: int) -> Iterator[PageLine]:
    """What is cleared, and what was seen."""
    mark = Span(f"cleared  {visible(name, limit=40)}: ", "accepted")
    yield from paragraph(visible(item.summary, limit=200), width, first=mark, hang=9)


def not_checked_lines(items: Iterable[NotChecked], width: int) -> Iterator[PageLine]:
    """Each question, why it is open, and what would answer it."""
    for item in items:
        words = visible(item.reason, limit=160)
        words += f"; {visible(item.how, limit=160)}" if item.how else ""
        mark = Span(f"open     {visible(item.id, limit=40)}: ", "dim")
        yield from paragraph(words, width, first=mark, hang=9)


def outcome_lines(outcomes: Sequence[Outcome], width: int, own: str) -> Iterator[PageLine]:
    """The answers of a few rules on a page, findings first; a rule with a finding is not called cleared."""
    accused = {rule_of(outcome.id) for outcome in outcomes if isinstance(outcome, Finding)}
    cleared = (item for item in outcomes if isinstance(item, Cleared))
    for outcome in outcomes:
        if isinstance(outcome, Finding):
            yield from finding_lines(outcome, width, with_evidence=True, own=own)
    yield from cleared_lines((item for item in cleared if rule_of(item.id) not in accused), width)
    yield from not_checked_lines((item for item in outcomes if isinstance(item, NotChecked)), width)


def bound_lines(total: int, width: int, command: str) -> Iterator[PageLine]:
    """Says so where only the first steps were read, and which command reads all."""
    if total > FIRST_STEPS:
        words = f"From the first {FIRST_STEPS:,} of {total:,} steps; {command} reads all."
        yield from paragraph(words, width, role="warning")
