"""A report as Markdown, small enough for one issue, whatever the trace holds.

Every text is made visible first; a word that Markdown or GitHub would read as more than a word (a link, a
mention, HTML, an issue number) stands in a code span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from spectrace.format.text import visible
from spectrace.report.blocks import Bars, Block, Bullets, Code, Section, Table, Text
from spectrace.report.document import Document

MAX_CHARACTERS = 65_536
"""GitHub's limit for the body of an issue."""
MAX_CELL = 200
MAX_TEXT = 1200
_ROOM = 1_500
"""Characters kept for the sentence that says what was left out."""
_SPECIAL = re.compile(r"[`*_<>\[\]@#&|\\~$^{}]|://|\bwww\.|:\w+:", re.IGNORECASE)
_MARKER = re.compile(r"[-+=]+|\d+[.)]")
"""What makes a list or a heading of a line that begins with it."""
_BAR = 30


def markdown(report: Document) -> str:
    """The report; at most `MAX_CHARACTERS`, sections at the end are left out where they do not fit."""
    whole = f"# {report.title}\n"
    left_out: list[str] = []
    for section in report.sections:
        text = "\n".join(_section(section))
        if left_out or len((whole + text).encode()) > MAX_CHARACTERS - _ROOM:
            left_out.append(section.title)
        else:
            whole += text
    if left_out:
        whole += f"\nLeft out, there is no room in an issue: {', '.join(left_out)}.\n"
    return whole


def _section(section: Section) -> Iterator[str]:
    yield f"\n## {section.title}\n"
    for block in section.blocks:
        yield from _block(block)
        yield ""


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Text):
        yield prose(block.text, MAX_TEXT)
    elif isinstance(block, Bullets):
        yield from (f"- {prose(item, MAX_TEXT // 2)}" for item in block.items)
    elif isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Bars):
        yield from ("```text", *_bars(block), "```")
    elif isinstance(block, Code):
        yield from (
            "```sh",
            *(visible(line, limit=MAX_TEXT).replace("`", "'") for line in block.lines),
            "```",
        )


def _table(block: Table) -> Iterator[str]:
    yield _row([prose(head, MAX_CELL) for head in block.heads])
    yield _row(["---"] * len(block.heads))
    for row in block.rows:
        yield _row([prose(cell, MAX_CELL) for cell in row])


def _row(cells: Sequence[str]) -> str:
    # Also within a code span GitHub ends a cell at a bar that is not escaped.
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _bars(block: Bars) -> Iterator[str]:
    width = max((len(name) for name, _ in block.rows), default=0)
    for name, share in block.rows:
        filled = 0 if share is None else round(min(max(share, 0.0), 1.0) * _BAR)
        value = "   -  " if share is None else f"{share:.3f}"
        yield f"{visible(name, limit=40):<{width}}  {value}  {'█' * filled}{'·' * (_BAR - filled)}"


def prose(text: str, limit: int) -> str:
    """A sentence with every word that is more than a word to Markdown in a code span.

    >>> prose("see <b>https://x.y</b> and @me", 100)
    'see `<b>https://x.y</b>` and `@me`'
    """
    words = visible(text, limit=limit).split(" ")
    if _MARKER.fullmatch(words[0]) and len(words) > 1:
        words[0] = f"`{words[0]}`"
    return " ".join(_span(word) if _SPECIAL.search(word) else word for word in words)


def _span(word: str) -> str:
    """A code span whose fence is longer than every run of backticks in it; marks behind stay outside."""
    core = word.rstrip(",.;:")
    if core and _SPECIAL.search(core):
        return _fenced(core) + word[len(core) :]
    return _fenced(word)


def _fenced(word: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", word)), default=0)
    if not longest:
        return f"`{word}`"
    fence = "`" * (longest + 1)
    return f"{fence} {word} {fence}"
