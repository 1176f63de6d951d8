"""The numbers behind a finding, as lines: names in words, shares with their interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spectrace.analysis.intervals import Mean, Share
from spectrace.format.text import visible
from spectrace.tui.pages.page import PageLine
from spectrace.tui.pages.paragraphs import paragraph
from spectrace.tui.spans import Span

_MOST = 6
_MOST_ITEMS = 16


def evidence_lines(evidence: Mapping[str, Any], width: int, *, indent: int) -> Iterator[PageLine]:
    """The first pieces of evidence that say something."""
    told = [(name, text) for name, value in evidence.items() if (text := value_text(value))]
    for name, text in told[:_MOST]:
        first = Span(f"{words(name)}: ", "dim")
        yield from paragraph(text, width, first=first, indent=indent, hang=indent + 2)


def words(name: str) -> str:
    """A name of the analysis in words."""
    return visible(name, limit=60).replace("_", " ")


def value_text(value: Any) -> str:
    """A piece of evidence as text; empty when it says nothing.

    >>> value_text({"distinct": 560, "equals_mask": True}), value_text([0.5, None])
    ('distinct 560, equals mask yes', '0.500, ')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, (Share, Mean)):
        return str(value)
    if isinstance(value, Mapping):
        return ", ".join(
            f"{words(str(name))} {value_text(item)}" for name, item in list(value.items())[:_MOST_ITEMS]
        )
    if isinstance(value, (list, tuple)):
        return ", ".join(map(value_text, value[:_MOST_ITEMS]))
    return "" if value is None else visible(str(value), limit=200)
