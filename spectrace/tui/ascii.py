"""Drawn characters as plain ones, cell for cell, for a terminal that has no others."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TextIO

from rich.cells import get_character_cell_size

from spectrace.tui.spans import Line, Span

_PLAIN = str.maketrans("─│├└·→…█░▁▂▃▄▅▆▇⟨⟩‹", "-||`.>~#." + "_.-=+*%<><")


def to_ascii(line: Iterable[Span]) -> Line:
    """A line without box characters, blocks and arrows; text of the trace stays as it is.

    >>> to_ascii([Span("└─x0 ▁▄█ …")])
    [Span(text='`-x0 _=# ~', role='plain')]
    """
    return [Span(span.text.translate(_PLAIN), span.role) for span in line]


def narrow_encoding(stream: TextIO | None) -> str:
    """The encoding of a stream that cannot say every character, "" for one that can."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    return "" if "utf" in encoding.lower() else encoding


def sayable(text: str, encoding: str) -> str:
    """A text as an encoding can say it, cell for cell: `?` for what has no plain character.

    >>> sayable("├─ naïve 世界", "ascii")
    '|- na?ve ????'
    """
    if text.isascii():
        return text
    return "".join(_sayable(character, encoding) for character in text.translate(_PLAIN))


@lru_cache(maxsize=4096)
def _sayable(character: str, encoding: str) -> str:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return "?" * get_character_cell_size(character)
    return character
