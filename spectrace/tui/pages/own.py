"""The pages that are about the viewer and not about the trace: its keys, and what is to be copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from spectrace.analysis.where import NAMES
from spectrace.format.text import visible
from spectrace.tui.keys import GROUP_TITLES, Key
from spectrace.tui.loader import Loader
from spectrace.tui.pages.page import Page, PageLine
from spectrace.tui.pages.paragraphs import fitted, line, paragraph
from spectrace.tui.spans import Role, Span, chopped, left


def help_page(keys: Sequence[Key], note: str) -> Page:
    """Every key and every mark.

    Args:
        keys: the registry, a reader's own keys in it.
        note: where these are kept, and what is wrong with them.
    """
    return Page(
        id="help",
        title="Help",
        key="",
        description="every key",
        gather=_nothing,
        lines=lambda _, width: help_lines(width, keys, note),
        follows_cursor=False,
    )


def help_lines(width: int, keys: Sequence[Key], note: str = "") -> list[PageLine]:
    """Every key by group, then what the marks mean, then where a reader's own keys are kept."""
    return fitted(_help_lines(width, keys, note), width)


def _help_lines(width: int, keys: Sequence[Key], note: str) -> Iterator[PageLine]:
    for group, title in GROUP_TITLES.items():
        yield line(Span(f" {title}", "strong"))
        for key in keys:
            if key.group == group:
                command = f" :{key.command}" if key.command and key.shown else ""
                yield from _item(key.shown or f":{key.command}", "strong", key.description + command, width)
    yield line(Span(" Marks", "strong"))
    for sign, role, meaning in _MARKS:
        yield from _item(sign, role, meaning, width)
    if note:
        yield line(Span(" Your own keys", "strong"))
        yield from paragraph(note, width, indent=3)


_MARKS: tuple[tuple[str, Role, str], ...] = (
    ("=token", "accepted", "accepted"),
    ("xfox→dog", "rejected", "the first rejected token, and what was committed instead"),
    ("·token", "dim", "not reached: after a rejection"),
    ("-token", "dim", "tree: another child was accepted here"),
    ("+token", "bonus", "the target's own token after full acceptance"),
    ("‹2", "dim", "two more tokens before these, for which the line has no room"),
    ("!", "warning", "before a step: a finding of the diagnosis names it"),
    ("more: Enter", "strong", "the step has more than its pane shows"),
    ("▁▄█", "dim", "second row: share of steps with a rejection"),
)


def _item(sign: str, role: Role, words: str, width: int) -> Iterator[PageLine]:
    yield from paragraph(words, width, first=Span(f"   {left(sign, 14)}", role))


def fields_page() -> Page:
    """What an expression of `/`, `&` and `steps --where` may name."""
    return Page(
        id="fields",
        title="Fields of an expression",
        key="",
        description="fields",
        gather=_nothing,
        lines=lambda _, width: fitted(_field_lines(width), width),
        follows_cursor=False,
    )


_GRAMMAR = (
    'accepted < 2 and position > 2048; 1 <= accepted < 4; stop == "eos"; "replay" in flags; not (1 in '
    "target_ranks). Signs: < <= > >= == !=; words: and, or, not, in. A field alone is true when it is there "
    "and neither zero nor empty."
)


def _field_lines(width: int) -> Iterator[PageLine]:
    yield from paragraph(_GRAMMAR, width, indent=1)
    yield PageLine([])
    for name, kind in NAMES.items():
        yield line(Span(f" {left(name, 24)}", "strong"), Span(f" {kind}"))


def copy_page(text: str, what: str) -> Page:
    """What is about to be copied, shown before it is."""
    return Page(
        id="copy",
        title=f"Enter copies {what} ({len(text.encode()):,} bytes), Esc does not",
        key="",
        description="copy",
        gather=_nothing,
        lines=partial(_text_lines, text),
        follows_cursor=False,
    )


def _nothing(_loader: Loader, _row: int) -> None:
    return None


def _text_lines(text: str, _facts: Any, width: int) -> list[PageLine]:
    return [
        PageLine([Span(piece)])
        for line in text.split("\n")
        for piece in chopped(visible(line), width) or [""]
    ]
