"""How the lines of the terminal are shared out, for any size. Numbers only."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST = (2_000, 1_000)
"""Columns and lines of a terminal that is drawn on: each cell is kept."""
FEWEST_LISTED = 3
"""Lines of the list where a trace has fewer steps: what is said of a filter that keeps none takes as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Heights in lines; 0 = not shown. Together they are the terminal's height."""

    width: int
    minimap: int
    list: int
    """Lines for steps, without the line of column names."""
    detail: int
    hints: int


def bounded_size(told: tuple[int, int], before: tuple[int, int]) -> tuple[int, int]:
    """Columns and lines to draw for; a side that no terminal has stays as it was.

    Args:
        told: what the terminal says.
        before: what it said last.

    >>> bounded_size((100, 30), (80, 24)), bounded_size((0, 65535), (80, 24)), bounded_size((-1, 9), (0, 0))
    ((100, 30), (80, 24), (1, 9))
    """
    width, height = (
        side if 1 <= side <= most else max(1, min(last, most))
        for side, last, most in zip(told, before, LARGEST)
    )
    return width, height


def layout_for(width: int, height: int, total: int, *, is_zoomed: bool = False) -> Layout:
    """Lines for each part.

    Panes are stacked and never side by side: only lines that span the terminal can be scrolled by it. A
    small terminal shows the list alone, and the step alone when it is opened. A list that needs fewer lines
    leaves them to the step.

    Args:
        width: of the terminal, cells.
        height: of the terminal, lines.
        total: steps of the trace.
        is_zoomed: the step has the list's lines.

    >>> layout_for(80, 24, 1000)
    Layout(width=80, minimap=1, list=9, detail=10, hints=1)
    >>> layout_for(80, 24, 5)
    Layout(width=80, minimap=1, list=5, detail=14, hints=1)
    >>> layout_for(40, 10, 1000)
    Layout(width=40, minimap=0, list=6, detail=0, hints=1)
    """
    minimap = 1 if height >= 16 else 0
    hints = 1 if height >= 8 else 0
    # Header, column names and status are always there.
    room = max(height - 3 - minimap - hints, 1)
    if is_zoomed:
        return Layout(width=width, minimap=minimap, list=0, detail=room + 1, hints=hints)
    has_detail = height >= (20 if width >= 60 else 30)
    if not has_detail:
        return Layout(width=width, minimap=minimap, list=room, detail=0, hints=hints)
    listed = min(room - min(max(room * 45 // 100, 10), 18), max(total, FEWEST_LISTED))
    return Layout(width=width, minimap=minimap, list=listed, detail=room - listed, hints=hints)
