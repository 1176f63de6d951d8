"""How findings, cleared causes and unanswered questions look as text, for every command that prints them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from spectrace.cli.output import has_colour, number
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked

_COLOURS = {"certain": "red", "strong": "yellow", "hint": "cyan"}
_EVIDENCE_LINES = 6
_MAX_ID, _MAX_TEXT = 120, 1000
"""Longest name and longest sentence that is shown, characters: a rule may quote a trace."""
_WIDTH = 100
"""Longest line, whatever the terminal."""


def finding_lines(finding: Finding, *, with_evidence: bool) -> Iterator[str]:
    """A finding: strength and id, what it is, its numbers, where to look, what to do."""
    label = finding.strength.value
    text = click.style(label, fg=_COLOURS[label], bold=True) if has_colour() else label
    yield f"{text}: {visible(finding.id, limit=_MAX_ID)}"
    yield from wrapped("  ", visible(finding.summary, limit=_MAX_TEXT))
    if with_evidence:
        lines = [(key, line) for key, value in finding.evidence.items() if (line := _value(value))]
        for key, line in lines[:_EVIDENCE_LINES]:
            yield from wrapped(
                f"  {visible(str(key), limit=_MAX_ID).replace('_', ' ')}: ", line, indent="    "
            )
    if finding.steps:
        steps = ", ".join(number(step) for step in finding.steps)
        yield from wrapped("  first steps: ", steps, indent="    ")
    yield from wrapped("  next: ", visible(finding.advice, limit=_MAX_TEXT), indent="    ")


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


def wrapped(start: str, text: str, *, indent: str = "  ") -> Sequence[str]:
    """Text in lines that fit the terminal."""
    width = min(shutil.get_terminal_size().columns, _WIDTH)
    whole = start + text
    return textwrap.wrap(whole, width, subsequent_indent=indent, break_on_hyphens=False) or [start]


def _value(value: Any) -> str:
    """A piece of evidence as text; empty when it says nothing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, Mapping):
        return ", ".join(
            f"{visible(str(k), limit=_MAX_ID).replace('_', ' ')} {_value(v)}"
            for k, v in list(value.items())[:16]
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value[:16]))
    return "" if value is None else visible(str(value), limit=200)
