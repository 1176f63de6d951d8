"""The pages that are about the viewer and not about the trace: its keys, and what is to be copied."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from spectrace.format.text import visible
from spectrace.tui.keys import Key
from spectrace.tui.loader import Loader
from spectrace.tui.pages.page import Page, PageLine
from spectrace.tui.spans import Span, chopped
from spectrace.tui.summary import help_lines


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
        lines=lambda _, width: [PageLine(line) for line in help_lines(width, keys, note)],
        follows_cursor=False,
    )


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
