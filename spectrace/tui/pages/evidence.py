"""The numbers behind a finding, as lines: names in words, shares with their interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spectrace.format.figures import value_text, words
from spectrace.format.text import visible
from spectrace.tui.pages.page import PageLine
from spectrace.tui.pages.paragraphs import paragraph
from spectrace.tui.spans import Span

_MOST = 6
_MAX_NAME, _MAX_TEXT = 60, 1000


def evidence_lines(evidence: Mapping[str, Any], width: int, *, indent: int) -> Iterator[PageLine]:
    """The first pieces of evidence that say something."""
    told = [(name, text) for name, value in evidence.items() if (text := value_text(value))]
    for name, text in told[:_MOST]:
        first = Span(f"{visible(words(name), limit=_MAX_NAME)}: ", "dim")
        line = visible(text, limit=_MAX_TEXT)
        yield from paragraph(line, width, first=first, indent=indent, hang=indent + 2)
