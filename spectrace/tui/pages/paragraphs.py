"""Headings, wrapped sentences and tables as lines of a page. Knows nothing of traces.

Texts come in escaped. Every line is at most as wide as asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len

from spectrace.tui.pages.page import PageLine
from spectrace.tui.spans import Role, Span, clip, clip_line, left, right
from spectrace.tui.step_detail import rule

LABEL = 16
"""Cells of the name before a value."""


def line(*spans: Span, row: int | None = None, position: int | None = None) -> PageLine:
    """A line of the page, yet to be fitted."""
    return PageLine(list(spans), row, position)


def fitted(lines: Iterable[PageLine], width: int) -> list[PageLine]:
    """The lines, each clipped to the width."""
    return [replace(one, spans=clip_line(one.spans, width)) for one in lines]


def heading(title: str, width: int, *, is_first: bool = False) -> Iterator[PageLine]:
    """A title over the whole width, an empty line before it."""
    if not is_first:
        yield PageLine([])
    yield PageLine(rule(title, width))


def wrapped(text: str, width: int, first_width: int | None = None) -> list[str]:
    """Text broken at blanks into lines of at most `width` cells; a longer word is broken anywhere.

    Args:
        text: escaped text.
        width: cells of a line.
        first_width: cells of the first line, where something stands before it.

    >>> wrapped("what the target wanted", 10)
    ['what the', 'target', 'wanted']
    """
    width = max(width, 2)
    room = width if first_width is None else first_width
    lines: list[str] = []
    words: list[str] = []
    used = 0
    for word in _words(text, width):
        size = cell_len(word)
        if (words or room < width) and used + bool(words) + size > room:
            lines.append(" ".join(words))
            words, used, room = [], 0, width
        used += size + bool(words)
        words.append(word)
    return [*lines, " ".join(words)] if words else lines


def _words(text: str, width: int) -> Iterator[str]:
    for word in text.split(" "):
        while cell_len(word) > width:
            head = clip(word, width + 1).removesuffix("…")
            head = head[: max(1, len(head))] or word[0]
            yield head
            word = word[len(head) :]
        if word:
            yield word


def paragraph(
    text: str,
    width: int,
    *,
    first: Span | None = None,
    indent: int = 0,
    hang: int | None = None,
    role: Role = "plain",
    row: int | None = None,
) -> Iterator[PageLine]:
    """A wrapped text.

    Args:
        text: escaped text.
        width: cells.
        first: what stands before the text on its first line.
        indent: cells that are left free before the first line.
        hang: cells that are left free before each further line; None to begin below the text itself.
        role: of the text.
        row: the step that Enter goes to from any of the lines.
    """
    lead = first or Span("")
    start = indent + cell_len(lead.text)
    hang = min(start if hang is None else hang, width // 2)
    texts = wrapped(text, width - hang, max(width - start, 0)) or [""]
    yield line(Span(" " * indent), lead, Span(texts[0], role), row=row)
    for rest in texts[1:]:
        yield line(Span(" " * hang), Span(rest, role), row=row)


def flowing(
    name: str, pieces: Sequence[str], width: int, *, row: int | None = None, position: int | None = None
) -> Iterator[PageLine]:
    """A name and pieces side by side, none of them broken over two lines; nothing without a piece."""
    label = _label(width)
    start = Span(left(name, label - 1) + " ", "dim")
    room, texts, used = width - label, list[str](), 0
    for piece in pieces:
        if texts and used + 2 + cell_len(piece) > room:
            yield line(start, Span("  ".join(texts)), row=row, position=position)
            start, texts, used = Span(" " * label), [], 0
        used += cell_len(piece) + (2 if texts else 0)
        texts.append(piece)
    if texts:
        yield line(start, Span("  ".join(texts)), row=row, position=position)


def _label(width: int) -> int:
    """Cells of a name and the blank behind it."""
    return LABEL if width >= 60 else max(min(LABEL, width // 3), 2)


def labelled(
    name: str, text: str, width: int, *, role: Role = "plain", row: int | None = None
) -> Iterator[PageLine]:
    """A name and its value, wrapped below itself; nothing without a value."""
    if text:
        first = Span(left(name, _label(width) - 1) + " ", "dim")
        yield from paragraph(text, width, first=first, role=role, row=row)


def table_row(cells: Sequence[str], sizes: Sequence[int], *, num_left: int = 1) -> str:
    """Cells side by side: the first `num_left` flush left, numbers flush right; a size of 0 leaves out.

    >>> table_row(["r0", "1.5"], [4, 5])
    'r0     1.5'
    """
    shown = [
        left(cell, size) if at < num_left else right(cell, size)
        for at, (cell, size) in enumerate(zip(cells, sizes))
        if size > 0
    ]
    return " ".join(shown)


def sized(rows: Sequence[Sequence[str]], limits: Sequence[int]) -> list[int]:
    """Widths of the columns of a table: as wide as its widest cell, and no wider than its limit."""
    return [
        min(max((cell_len(row[at]) for row in rows), default=0), limit) for at, limit in enumerate(limits)
    ]


def bar(share: float | None, cells: int) -> str:
    """A horizontal bar of at most `cells` cells for a share of 0..1.

    >>> bar(0.5, 8), bar(None, 4)
    ('████░░░░', '    ')
    """
    if share is None or cells <= 0:
        return " " * max(cells, 0)
    full = min(max(round(share * cells), 0), cells) if share == share else 0
    return "█" * full + "░" * (cells - full)
