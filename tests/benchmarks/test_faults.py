"""The fault matrix end to end, on runs too short for statistics: certain faults are named all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.faults import matrix, rig  # noqa: E402
from benchmarks.faults.faults import FAULTS  # noqa: E402
from benchmarks.faults.healthy import HEALTHY  # noqa: E402
from benchmarks.faults.table import markdown  # noqa: E402

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One prompt a run."""
    monkeypatch.setattr(rig, "ENOUGH_PROMPTS", 1)
    monkeypatch.setattr(rig, "ENOUGH_STEPS", 0)


@pytest.mark.parametrize("name", ["map-read-direct", "taps-shifted-down", "draft-kv-kept"])
def test_a_fault_is_named_first(name: str, tmp_path: Path) -> None:
    """Recorded with the fault in the code, diagnosed, and told by name."""
    fault = next(fault for fault in FAULTS if fault.name == name)
    result = matrix.run(fault, 0, tmp_path)
    assert (result.verdict, result.findings[0]) == ("top", ("certain", fault.expected[0]))


@pytest.mark.parametrize("name", ["chain-4", "tree-12"])
def test_a_healthy_run_is_accused_of_nothing(name: str, tmp_path: Path) -> None:
    """Hints are allowed, and a trace that is there is not recorded again."""
    case = next(case for case in HEALTHY if case.name == name)
    result = matrix.run(case, 0, tmp_path)
    assert result.verdict == "clean"
    made = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert matrix.run(case, 0, tmp_path).steps == result.steps
    assert {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == made


def test_the_lists_hold_what_is_promised() -> None:
    """Names are unique, faults are 24 at least and healthy runs 30, and every one says what it expects."""
    names = [*(fault.name for fault in FAULTS), *(case.name for case in HEALTHY)]
    assert len(set(names)) == len(names)
    assert len(FAULTS) >= 24
    assert len(HEALTHY) >= 30
    assert all(fault.expected and fault.breaks for fault in FAULTS)


def test_the_table_counts_misses_and_alarms() -> None:
    """What is not on top is shown with what stood there instead."""
    given: dict[str, Any] = {"seed": 0, "steps": 300, "alpha1": 0.5, "seconds": 60.0}
    page = markdown(
        [
            matrix.Result(name="map-ramp", verdict="wrong", findings=[("certain", "tree/mask")], **given),
            matrix.Result(
                name="map-stale", verdict="top", findings=[("certain", "vocab-map/stale")], **given
            ),
            matrix.Result(name="chain-4", verdict="alarm", findings=[("strong", "tree/mask")], **given),
        ]
    )
    assert "| structural faults named as the top finding | 1 of 2 | 50.0% |" in page
    assert "| healthy runs with a certain or strong finding | 1 of 1 | 100.0% |" in page
    assert "`tree/mask` (certain)" in page
    assert "3.0 minutes" in page
