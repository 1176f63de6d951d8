"""A packed trace in the viewer: its tokens are unknown, everything else is there."""

from __future__ import annotations

from pathlib import Path

import spectrace
from spectrace.report.packing import pack
from tests.tui.driving import viewing


async def test_a_packed_trace_is_browsed_like_any_other(sample_traces: Path, tmp_path: Path) -> None:
    """Steps, ranks and gaps are shown, a token nobody knows is a question mark, and every jump works."""
    out = tmp_path / "attach.zip"
    with spectrace.open(sample_traces / "eagle3.spectrace") as trace:
        pack(trace, out, name=out.name)
    async with viewing(out) as viewer:
        await viewer.press("f")
        screen = viewer.text
        assert "attach.zip" in screen
        assert "?" in screen
        await viewer.press("e", "l", "h", "G", "g", "j", "k")
        assert viewer.app.is_running
