"""Pages about the whole run read no more than they say, and stop when nobody waits any more."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from threading import Event

import pytest

import spectrace
from spectrace.testing import write_trace
from spectrace.tui.loader import Loader, Stopped
from tests.tui.pages.showing import BY_ID, flat

WHOLE = ("overview", "taps", "vocabulary", "requests")


@pytest.mark.parametrize("name", WHOLE)
def test_a_reader_who_left_stops_the_reading(name: str, sample_traces: Path) -> None:
    """The gathering ends at the next piece that is read."""
    stop = Event()
    stop.set()
    with spectrace.open(sample_traces / "eagle3.spectrace") as trace:
        loader = Loader(trace).stoppable(stop)
        with pytest.raises(Stopped):
            BY_ID[name].gather(loader, 0)


def test_a_comparison_stops_too(sample_traces: Path) -> None:
    """And a later one is made anew."""
    path = sample_traces / "eagle3.spectrace"
    stop = Event()
    stop.set()
    with spectrace.open(path) as trace:
        loader = Loader(trace, against=[path])
        with pytest.raises(Stopped):
            BY_ID["diff"].gather(loader.stoppable(stop), 0)
        assert BY_ID["diff"].gather(loader, 0).comparison.is_equal


@pytest.mark.parametrize("name", WHOLE)
def test_what_was_left_unread_is_said(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a page says how many steps it speaks of, and which command reads all."""
    monkeypatch.setattr(import_module(f"spectrace.tui.pages.{name}"), "FIRST_STEPS", 20, raising=False)
    monkeypatch.setattr("spectrace.tui.pages.outcomes.FIRST_STEPS", 20)
    path = write_trace(tmp_path / "t.spectrace", ({"step": row, "request": f"r{row}"} for row in range(50)))
    assert "From the first 20 of 50 steps; spectrace " in flat(name, path)
