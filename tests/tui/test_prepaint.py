"""The first paint is the app's first screen, drawn sooner."""

from __future__ import annotations

from pathlib import Path

import pytest

import spectrace
from spectrace.tui.loader import Loader
from spectrace.tui.prepaint import frame_of, screen_lines
from spectrace.tui.spans import text_of, width_of
from tests.tui.driving import viewing
from tests.tui.traces import make_trace
from tests.tui.vt import Screen


@pytest.mark.parametrize("size", [(80, 24), (140, 40), (60, 20), (40, 10), (20, 6)])
@pytest.mark.parametrize(("steps", "at"), [(0, 0), (5, 0), (300, 0), (300, 299)])
async def test_the_first_paint_is_what_the_app_shows(
    tmp_path: Path, size: tuple[int, int], steps: int, at: int
) -> None:
    """Row by row the same text, so that nothing moves when the app takes over."""
    path = make_trace(tmp_path / "run.spectrace", steps)
    with spectrace.open(path) as trace:
        loader = Loader(trace)
        painted = [text_of(line).rstrip() for line in screen_lines(loader, at, *size)]
        async with viewing(path, size=size, at=at) as driven:
            # What is counted in the background is not known to the first paint.
            loader.count_requests()
            painted[0] = text_of(screen_lines(loader, at, *size)[0]).rstrip()
            assert driven.lines == painted


def test_the_frame_fills_the_terminal_and_honours_no_color(tmp_path: Path) -> None:
    """Every cell is written once; without colour no cell has one."""
    with spectrace.open(make_trace(tmp_path / "run.spectrace", 30)) as trace:
        lines = screen_lines(Loader(trace), 0, 80, 24)
    assert len(lines) == 24
    assert all(width_of(line) <= 80 for line in lines)
    for has_colour in (True, False):
        screen = Screen(80, 24)
        screen.feed(frame_of(lines, 80, has_colour=has_colour))
        assert screen.lines == [text_of(line).rstrip() for line in lines]
        styles = {unit for row in screen.cells for _, style in row for unit in style.split(",")}
        assert bool({unit for unit in styles if unit[:1] in ("f", "b")}) is has_colour
