"""How the lines of the terminal are shared out, for any size. Numbers only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Heights in lines; 0 = not shown. Together they are the terminal's height."""

    width: int
    minimap: int
    list: int
    """Lines for steps, without the line of column names."""
    detail: int
    hints: int


def layout_for(width: int, height: int, *, is_zoomed: bool = False) -> Layout:
    """Lines for each part.

    Panes are stacked and never side by side: only lines that span the terminal can be scrolled by it. A
    small terminal shows the list alone, and the step alone when it is opened.

    >>> layout_for(80, 24)
    Layout(width=80, minimap=1, list=9, detail=10, hints=1)
    >>> layout_for(40, 10)
    Layout(width=40, minimap=0, list=6, detail=0, hints=1)
    """
    minimap = 1 if height >= 16 else 0
    hints = 1 if height >= 8 else 0
    # Header, column names and status are always there.
    room = max(height - 3 - minimap - hints, 1)
    if is_zoomed:
        return Layout(width=width, minimap=minimap, list=0, detail=room + 1, hints=hints)
    has_detail = height >= (20 if width >= 60 else 30)
    detail = min(max(room * 45 // 100, 10), 18) if has_detail else 0
    return Layout(width=width, minimap=minimap, list=room - detail, detail=detail, hints=hints)
