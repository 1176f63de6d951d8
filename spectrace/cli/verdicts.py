"""How findings, cleared causes and unanswered questions look as text, for every command that prints them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from spectrace.analysis.acceptance import SIMULATED_NOTE, is_simulated, sampled
from spectrace.cli.output import has_colour
from spectrace.format.figures import number, value_text, words
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace import Run
    from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked

_COLOURS = {"certain": "red", "strong": "yellow", "hint": "cyan"}
_EVIDENCE_LINES, _BRIEF_LINES = 6, 4
_MAX_ID, _MAX_TEXT = 120, 1000
"""Longest name and longest sentence that is shown, characters: a rule may quote a trace."""
_WIDTH = 100
"""Longest line, whatever the terminal."""


def finding_lines(finding: Finding, *, with_evidence: bool, brief: bool = False) -> Iterator[str]:
    """A finding: strength and id, what it is, its numbers, where to look, what to do.

    Args:
        finding: what was found.
        with_evidence: also its numbers.
        brief: few of them, simple ones first, a line each.
    """
    label = finding.strength.value
    text = click.style(label, fg=_COLOURS[label], bold=True) if has_colour() else label
    yield f"{text}: {visible(finding.id, limit=_MAX_ID)}"
    yield from wrapped("  ", visible(finding.summary, limit=_MAX_TEXT))
    if with_evidence:
        told = [(name, text) for name, value in _ordered(finding, brief) if (text := value_text(value))]
        for name, text in told[: _BRIEF_LINES if brief else _EVIDENCE_LINES]:
            label, line = f"  {visible(words(name), limit=_MAX_ID)}: ", visible(text, limit=_MAX_TEXT)
            yield from _cut(label, line) if brief else wrapped(label, line, indent="    ")
    if finding.steps:
        steps = ", ".join(number(step) for step in finding.steps)
        yield from wrapped("  first steps: ", steps, indent="    ")
    for witness in finding.witnesses[:1]:
        yield from wrapped(f"  in step {number(witness.step)}: ", visible(witness.words), indent="    ")
    yield from wrapped("  next: ", visible(finding.advice, limit=_MAX_TEXT), indent="    ")


def _ordered(finding: Finding, brief: bool) -> list[tuple[str, Any]]:
    """The evidence; where it must be brief, objects of many numbers come last."""
    items = list(finding.evidence.items())
    return sorted(items, key=lambda item: isinstance(item[1], Mapping)) if brief else items


def _cut(start: str, text: str) -> Iterator[str]:
    """One line, with an ellipsis where it is too long."""
    first, *more = wrapped(start, text)
    width = min(shutil.get_terminal_size().columns, _WIDTH)
    yield f"{first[: width - 4].rstrip(' ,')} ..." if more else first


def cleared_lines(cleared: Sequence[Cleared]) -> Iterator[str]:
    """One entry per thing that was seen, with every cause that it clears."""
    by_summary: dict[str, list[str]] = {}
    for item in cleared:
        by_summary.setdefault(item.summary, []).append(item.id)
    for summary, names in by_summary.items():
        yield from wrapped(f"  {visible(', '.join(names))}: ", visible(summary), indent="    ")


def not_checked_lines(items: Sequence[NotChecked]) -> Iterator[str]:
    """One entry per reason, with every cause that it keeps from being checked."""
    by_reason: dict[str, list[str]] = {}
    for item in items:
        by_reason.setdefault(item.reason, []).append(item.id)
    for reason, names in by_reason.items():
        yield from wrapped(f"  {visible(', '.join(names))}: ", visible(reason), indent="    ")


def sampled_lines(run: Run) -> Iterator[str]:
    """What must be said beside the counts of a run of which only some requests were recorded."""
    if (part := sampled(run)) is not None:
        yield f"sampled: {part} of the requests"


def simulated_lines(run: Run) -> Iterator[str]:
    """What must be said beside the acceptance of a run that simulated it."""
    if is_simulated(run):
        yield from wrapped("note: ", SIMULATED_NOTE)


def wrapped(start: str, text: str, *, indent: str = "  ") -> Sequence[str]:
    """Text in lines that fit the terminal."""
    width = min(shutil.get_terminal_size().columns, _WIDTH)
    whole = start + text
    return textwrap.wrap(whole, width, subsequent_indent=indent, break_on_hyphens=False) or [start]
