"""Acceptance over the run: any number of cells adds up to the run, from steps and from the index alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spectrace
from spectrace.analysis import series
from spectrace.analysis.acceptance import accept_length
from spectrace.analysis.series import in_cells, series_of
from spectrace.testing import write_trace

STEPS = [{"step": at, "num_accepted": at % 4} for at in range(40)]


def test_cells_are_hand_counted(tmp_path: Path) -> None:
    """Eight steps that accept 0, 1, 2, 3, 0, 1, 2, 3 of three in two cells: 6 of 12 each."""
    with spectrace.open(write_trace(tmp_path / "t.spectrace", STEPS[:8])) as trace:
        cells = in_cells(series_of(trace), 2)
    assert [(cell.proposals, cell.drafted, cell.accepted, cell.rejected) for cell in cells] == [
        (4, 12, 6, 3)
    ] * 2
    assert [accept_length(cell) for cell in cells] == [2.5, 2.5]


@given(cells=st.integers(1, 100))
def test_any_number_of_cells_adds_up(cells: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is lost or counted twice, and there are no more cells than steps."""
    path = tmp_path_factory.getbasetemp() / "series.spectrace"
    if not path.exists():
        write_trace(path, STEPS)
    with spectrace.open(path) as trace:
        found = in_cells(series_of(trace), cells)
        assert len(found) == min(cells, 40)
        for name in ("steps", "proposals", "drafted", "accepted", "rejected"):
            assert sum(getattr(cell, name) for cell in found) == getattr(trace.counts, name)


def test_the_index_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long trace is summed by groups of the index, to the same totals."""
    with spectrace.open(write_trace(tmp_path / "t.spectrace", STEPS)) as trace:
        exact = in_cells(series_of(trace), 1)
        monkeypatch.setattr(series, "EXACT_ROWS", 10)
        assert in_cells(series_of(trace), 1) == exact


def test_no_step_gives_no_cell(tmp_path: Path) -> None:
    """An empty trace has no course."""
    with spectrace.open(write_trace(tmp_path / "t.spectrace")) as trace:
        assert in_cells(series_of(trace), 80) == ()
