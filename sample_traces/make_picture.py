"""Draws README's picture: the viewer on a sample trace, as SVG.

python sample_traces/make_picture.py
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import spectrace
from spectrace.tui.loader import Loader
from spectrace.tui.terminal import Terminal
from spectrace.tui.viewer import Viewer

HERE = Path(__file__).parent
TRACE = "draft-greedy.spectrace"
SIZE = (104, 30)


async def draw(out: Path) -> None:
    """Runs the viewer without a terminal, goes to a rejection and saves what it shows."""
    terminal = Terminal(is_frugal=False, is_ansi=False, has_mouse=False)
    with spectrace.open(HERE / TRACE) as trace:
        viewer = Viewer(Loader(trace), terminal)
        async with viewer.run_test(size=SIZE) as pilot:
            for key in ("8", "G", "e"):
                await pilot.press(key)
            await viewer.workers.wait_for_complete()
            await pilot.pause(0.5)
            viewer.save_screenshot(out.name, path=str(out.parent))


if __name__ == "__main__":
    asyncio.run(draw(HERE / "viewer.svg"))
