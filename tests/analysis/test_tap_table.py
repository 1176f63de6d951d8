"""The table of the taps: means by hand, jumps that stay visible, bounds that hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.analysis import tap_table
from spectrace.analysis.diagnosis.facts import Facts, collect
from spectrace.analysis.diagnosis.fingerprints import TapTally
from spectrace.analysis.tap_table import CourseTally, TapRow, heat, largest_jump, tap_rows
from spectrace.testing import write_trace


def _facts(path: Path) -> Facts:
    with spectrace.open(path) as trace:
        return collect(trace, [TapTally, CourseTally])


def _tap(rms: float, boundary: int = 2, **more: Any) -> dict[str, Any]:
    return {"boundary": boundary, "shape": [1, 8], "dtype": "float16", "rms": rms, **more}


def test_means_are_hand_counted(tmp_path: Path) -> None:
    """Two taps, two steps, the first token of the text left out."""
    steps = [
        {"step": 0, "taps": [_tap(100.0, position=0), _tap(2.0, position=1), _tap(4.0, position=2)]},
        {"step": 1, "taps": [_tap(5.0, position=3), _tap(7.0, boundary=5, position=3)]},
    ]
    rows = tap_rows(_facts(write_trace(tmp_path / "t.spectrace", steps)))
    assert [(row.tap, row.course, row.rms) for row in rows] == [(2, (3.0, 5.0), 4.0), (5, (None, 7.0), 7.0)]
    assert [row.first_step for row in rows] == [0, 1]


def test_stretches_double_and_keep_their_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More steps than stretches: neighbours are joined, no step is lost."""
    monkeypatch.setattr(tap_table, "_MOST_STRETCHES", 4)
    steps = ({"step": at, "taps": [_tap(float(at))]} for at in range(10))
    (row,) = tap_rows(_facts(write_trace(tmp_path / "t.spectrace", steps)))
    assert row.stretch == 4
    assert row.course == (1.5, 5.5, 8.5)


def test_a_sample_has_its_reference(sample_traces: Path) -> None:
    """Shifted taps resemble the next boundary; healthy ones their own, at the same length."""
    shifted = tap_rows(_facts(sample_traces / "eagle3-taps-shifted.spectrace"))
    assert [(row.declared, row.best, row.is_elsewhere) for row in shifted] == [
        (2, 3, True),
        (4, 5, True),
        (5, 6, True),
    ]
    healthy = tap_rows(_facts(sample_traces / "eagle3.spectrace"))
    assert all(row.ratio == pytest.approx(1, abs=1e-3) and not row.is_scaled for row in healthy)


def test_a_jump_is_not_averaged_away() -> None:
    """One odd stretch among a thousand is seen in four cells."""
    course = [1.0] * 1000
    course[333] = 16.0
    row = TapRow(tap=2, declared=2, course=course, stretch=3)
    assert [level == 1.0 for level in heat(row, 4)] == [False, True, False, False]
    jump = largest_jump(row)
    assert jump is not None
    assert (jump.first_row, jump.last_row, jump.ratio) == (999, 1001, 16.0)


def test_a_tap_without_length_has_no_course() -> None:
    """Nothing recorded, nothing drawn, no jump."""
    row = TapRow(tap=2, declared=None, course=(None, None))
    assert heat(row, 4) == (None, None)
    assert largest_jump(row) is None
    assert row.ratio is None
