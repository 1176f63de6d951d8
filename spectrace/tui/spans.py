"""Text with a role, measured in terminal cells.

What a screen shows is built from these, so that the same lines are drawn by Textual, by the first
paint before it, and by tests. Knows no Textual and no colour: a role says what a text means.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from rich.cells import cell_len, chop_cells

Role = Literal["plain", "dim", "strong", "cursor", "accepted", "rejected", "wanted", "bonus", "warning"]
ROLES: tuple[Role, ...] = (
    "plain",
    "dim",
    "strong",
    "cursor",
    "accepted",
    "rejected",
    "wanted",
    "bonus",
    "warning",
)


class Span(NamedTuple):
    """A piece of one line."""

    text: str
    role: Role = "plain"


Line = list[Span]


def width_of(line: Iterable[Span]) -> int:
    """Cells a line takes."""
    return sum(cell_len(span.text) for span in line)


def clip(text: str, width: int) -> str:
    """Text of at most `width` cells, its end replaced by an ellipsis where it is longer.

    >>> clip("divergence", 5)
    'dive…'
    """
    if width <= 0:
        return ""
    # No character is wider than two cells: what is far too long is never measured whole.
    if len(text) <= width * 8 and cell_len(text) <= width:
        return text
    pieces = chop_cells(text[: width * 8], width - 1) if width > 1 else []
    return (pieces[0] if pieces else "") + "…"


def left(text: str, width: int) -> str:
    """Text clipped or padded on the right to exactly `width` cells."""
    text = clip(text, width)
    return text + " " * (width - cell_len(text))


def right(text: str, width: int) -> str:
    """Text clipped or padded on the left to exactly `width` cells."""
    text = clip(text, width)
    return " " * (width - cell_len(text)) + text


def clip_line(line: Iterable[Span], width: int) -> Line:
    """A line of at most `width` cells, an ellipsis at its end where it is longer."""
    spans = [span for span in line if span.text]
    if width_of(spans) <= width:
        return spans
    clipped: Line = []
    room = width - 1
    for span in spans:
        used = cell_len(span.text)
        if used > room:
            clipped.append(Span(clip(span.text, room + 1), span.role))
            break
        clipped.append(span)
        room -= used
    return clipped


def text_of(line: Iterable[Span]) -> str:
    """A line without its roles."""
    return "".join(span.text for span in line)


def chopped(text: str, width: int) -> list[str]:
    """Text in pieces of at most `width` cells."""
    return chop_cells(text, max(width, 2))
