"""Drawn characters as plain ones, cell for cell, for a terminal that has no others."""

from __future__ import annotations

from collections.abc import Iterable

from spectrace.tui.spans import Line, Span

_PLAIN = str.maketrans("─│├└·→…█░▁▂▃▄▅▆▇⟨⟩‹", "-||`.>~#." + "_.-=+*%<><")


def to_ascii(line: Iterable[Span]) -> Line:
    """A line without box characters, blocks and arrows; text of the trace stays as it is.

    >>> to_ascii([Span("└─x0 ▁▄█ …")])
    [Span(text='`-x0 _=# ~', role='plain')]
    """
    return [Span(span.text.translate(_PLAIN), span.role) for span in line]
