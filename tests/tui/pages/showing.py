"""Pages of traces as text, for their tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import spectrace
from spectrace.tui.loader import Loader
from spectrace.tui.pages import PAGES, Page, PageLine
from spectrace.tui.spans import text_of, width_of

BY_ID = {page.id: page for page in PAGES}


def facts_of(page: Page, path: Path, row: int = 0) -> Any:
    """What a page gathers of a trace."""
    with spectrace.open(path) as trace:
        loader = Loader(trace)
        return page.gather(loader, max(min(row, loader.total - 1), 0))


def lines_of(id_: str, path: Path, row: int = 0, width: int = 80) -> list[PageLine]:
    """The lines of a page."""
    return BY_ID[id_].lines(facts_of(BY_ID[id_], path, row), width)


def shown(id_: str, path: Path, row: int = 0, width: int = 80) -> str:
    """The text of a page."""
    return "\n".join(text_of(line.spans) for line in lines_of(id_, path, row, width))


def flat(id_: str, path: Path, row: int = 0, width: int = 80) -> str:
    """The text of a page with every run of blanks and newlines as one blank."""
    return " ".join(shown(id_, path, row, width).split())


def check_lines(lines: list[PageLine], width: int, total: int) -> None:
    """Lines are within the width, hold nothing a terminal would act on, and lead to steps that exist."""
    for line in lines:
        text = text_of(line.spans)
        assert width_of(line.spans) <= width, text
        assert all(character.isprintable() for character in text), repr(text)
        assert line.row is None or 0 <= line.row < total
        assert line.position is None or line.row is not None
