"""The table of requests: the worst first, those below chance marked, each leading to its first step."""

from __future__ import annotations

from pathlib import Path

import pytest

from spectrace.testing import write_trace
from spectrace.tui.pages import requests
from tests.tui.pages.showing import lines_of, shown


def _steps(accepted: dict[str, int], each: int) -> list[dict[str, object]]:
    return [
        {"request": name, "step": at, "num_accepted": count}
        for at in range(each)
        for name, count in accepted.items()
    ]


def test_the_worst_comes_first(sample_traces: Path) -> None:
    """Ordered by accept length, with the run as a whole above."""
    lines = shown("requests", sample_traces / "draft-greedy.spectrace").splitlines()
    assert lines[2].split() == ["whole", "run", "51", "120", "2.38", "29.5", "%", "0.600"]
    assert lines[3].split() == ["*", "r0", "0", "21", "40", "1.90", "19.0", "%", "0.476"]
    assert [line.split()[-4] for line in lines[3:6]] == ["1.90", "2.67", "2.79"]


def test_a_request_below_chance_is_marked(tmp_path: Path) -> None:
    """A request that hardly accepts anything among good ones is marked by a sign, not by colour alone."""
    path = write_trace(tmp_path / "t.spectrace", _steps({"good": 3, "fine": 3, "bad": 0}, 40))
    rows = [line for line in shown("requests", path).splitlines() if line.startswith(("!", ">"))]
    assert [row.split()[:2] for row in rows] == [["!", "bad"]]


def test_enter_goes_to_the_first_step_of_a_request(tmp_path: Path) -> None:
    """Interleaved requests lead to the row in which each begins."""
    path = write_trace(tmp_path / "t.spectrace", _steps({"a": 3, "b": 2, "c": 1}, 5))
    assert [line.row for line in lines_of("requests", path) if line.row is not None] == [2, 1, 0]


def test_many_requests_are_listed_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the rest is counted."""
    monkeypatch.setattr(requests, "MOST_ROWS", 3)
    path = write_trace(tmp_path / "t.spectrace", _steps({f"r{at}": 1 for at in range(9)}, 2))
    text = shown("requests", path)
    assert "Listed are the worst 3 of 9 requests." in text
    assert len([line for line in lines_of("requests", path) if line.row is not None]) == 3


def test_of_equal_requests_none_is_the_worst(sample_traces: Path) -> None:
    """Both accept nothing: neither is marked, and nothing is said of a mark."""
    text = shown("requests", sample_traces / "prompt-lookup.spectrace", width=120)
    assert "*" not in text
