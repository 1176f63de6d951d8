"""What a page is: slow facts gathered beside the screen, then lines made of them for any width.

The screen that hosts pages knows no more than this; a page knows no screen, no key handling and no Textual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spectrace.tui.loader import Loader
from spectrace.tui.spans import Line


@dataclass(frozen=True, slots=True)
class PageLine:
    """One line of a page."""

    spans: Line
    row: int | None = None
    """The step that Enter goes to from this line."""
    position: int | None = None
    """Token of that step."""
    page: str = ""
    """Id of the page that Enter opens there, "" = the list of steps."""
    word: str = ""
    """What is said there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One screen of the viewer beside the list of steps."""

    id: str
    title: str
    key: str
    """Textual's names, separated by commas, as in `keys.py`."""
    description: str
    gather: Callable[[Loader, int], Any]
    """The slow part, for a worker thread: (loader, row of the cursor) -> frozen facts."""
    lines: Callable[[Any, int], list[PageLine]]
    """Pure: (facts, width) -> lines of at most `width` cells, everything of the trace escaped."""
    follows_cursor: bool
    """Gathered again when the cursor moves; else once for each length of the trace."""
