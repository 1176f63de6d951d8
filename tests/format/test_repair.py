"""Repair saves what is whole; compaction says the same in fewer bytes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import spectrace
from spectrace.errors import NotATrace, RecorderError, TraceError, UnsupportedVersion
from spectrace.format.frames import pack_body, pack_frame
from spectrace.format.records import present_fields
from spectrace.format.repair import repair
from spectrace.testing import step_fields, write_trace
from tests.format.recording_child import fields_of
from tests.strategies import Fields, as_read, references, requests, runs, same, steps, token_tables

SLOW = settings(
    max_examples=40,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def everything(path: Path) -> list[Any]:
    """All that a trace says, but for where it lies."""
    with spectrace.open(path) as trace:
        return [
            [present_fields(step) for step in trace],
            trace.run_mapping,
            [(r.request, r.prompt_ids, r.prompt_digest, r.segment_map) for r in trace.requests],
            [
                (r.request, r.boundary, [(row.position, row.rms, row.projections) for row in r.rows])
                for r in trace.references
            ],
            [(gap.lost, gap.reason) for gap in trace.gaps],
            [trace.token_text(n) for n in range(20)],
            trace.end,
            trace.state,
            trace.counts.to_mapping(),
        ]


@SLOW
@given(
    runs,
    st.lists(steps(), max_size=5),
    st.lists(requests, max_size=2),
    st.lists(token_tables, max_size=2),
    st.lists(references, max_size=1),
    st.booleans(),
    st.booleans(),
)
def test_a_repaired_or_compacted_trace_says_the_same(
    run: Fields,
    rows: list[Fields],
    given_requests: list[Fields],
    tables: list[Fields],
    given_references: list[Fields],
    is_flushed: bool,
    is_compacted: bool,
) -> None:
    """A sound trace comes out of a repair, compacted or not, with every record equal and no problem."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "a.spectrace", Path(folder) / "b.spectrace"
        with spectrace.TraceWriter(first, run, strict=True, flush_interval=0.0005) as writer:
            for request in given_requests:
                writer.request(request["request"], **{k: v for k, v in request.items() if k != "request"})
            for table in tables:
                writer.tokens(**table)
            for at, row in enumerate(rows):
                writer.step(row)
                if is_flushed:
                    assert writer.flush()
                if at == 1:
                    writer.gap(lost=3, reason="queue full")
            for fields in given_references:
                writer.reference(**fields)
            writer.amend(reported={"x": 1})
        report = repair(first, second, compact=is_compacted)
        assert report.is_clean
        assert report.steps == len(rows)
        assert same(everything(second), everything(first))
        with spectrace.open(second) as trace:
            assert trace.problems == []


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Steps in many frames."""
    path = tmp_path / "t.spectrace"
    with spectrace.TraceWriter(path, {"method": "eagle"}, strict=True, flush_interval=0.001) as writer:
        for number in range(1000):
            writer.step(fields_of(number))
            if number % 10 == 9:
                assert writer.flush()
    return path


def test_compaction_makes_a_trace_smaller(trace: Path, tmp_path: Path) -> None:
    """Many small frames become few compressed ones."""
    out = tmp_path / "compact.spectrace"
    assert repair(trace, out, compact=True).steps == 1000
    assert out.stat().st_size < trace.stat().st_size / 4
    assert same(everything(out), everything(trace))


def test_repair_leaves_out_what_is_damaged(trace: Path, tmp_path: Path) -> None:
    """Damaged frames are left out, counted and declared; the rest is whole and the source untouched."""
    data = bytearray(trace.read_bytes())
    places = [at for at in range(len(data)) if data.startswith(b"\x94\xa4STEP", at)]
    for frame in (3, 50, 51):
        data[places[frame] + 40] ^= 0xFF
    trace.write_bytes(data)
    report = repair(trace, tmp_path / "saved.spectrace")
    assert (report.steps, report.lost, report.is_clean) == (970, 30, False)
    assert report.skipped_bytes == places[4] - places[3] + places[52] - places[50]
    assert len(report.problems) == 2
    assert trace.read_bytes() == data
    with spectrace.open(tmp_path / "saved.spectrace") as saved:
        numbers = [*range(30), *range(40, 500), *range(520, 1000)]
        assert [step.step for step in saved] == numbers
        assert [step.step for step in saved.steps[:]] == numbers
        assert sum(gap.lost for gap in saved.gaps) == 30
        assert {gap.reason for gap in saved.gaps} == {"damaged"}
        assert saved.problems == []
        for step in saved.steps[25:60]:
            assert same(present_fields(step), as_read(fields_of(step.step)))


def test_repair_goes_on_without_a_header(trace: Path, tmp_path: Path) -> None:
    """When the header is lost the steps are saved under an empty one, and that is said."""
    data = bytearray(trace.read_bytes())
    data[30] ^= 0xFF
    trace.write_bytes(data)
    with pytest.raises(TraceError, match="repair"):
        spectrace.open(trace)
    report = repair(trace, tmp_path / "saved.spectrace")
    assert report.steps == 1000
    assert any("header" in problem for problem in report.problems)
    with spectrace.open(tmp_path / "saved.spectrace") as saved:
        assert len(saved) == 1000
        assert saved.run.method is None
        assert saved.requests.names == ["r0", "r1", "r2"]


def test_repair_of_a_killed_trace(trace: Path, tmp_path: Path) -> None:
    """A torn end is cut off; the result is whole, and still says that the recorder did not close it."""
    data = trace.read_bytes()
    cut = data.rindex(b"\x94\xa4STEP") + 30
    trace.write_bytes(data[:cut])
    report = repair(trace, tmp_path / "saved.spectrace", compact=True)
    assert (report.steps, report.skipped_bytes) == (990, 30)
    with spectrace.open(tmp_path / "saved.spectrace") as saved:
        assert saved.state == "unclosed"
        assert saved.problems == []
        assert len(saved) == 990


def test_a_hole_is_passed_over_quickly(tmp_path: Path) -> None:
    """Single steps, slices and searches around a large hole answer by its edges, not step by step."""
    path = tmp_path / "t.spectrace"
    with spectrace.TraceWriter(path, {}, strict=True, flush_interval=0.001) as writer:
        for first in range(0, 100_000, 500):
            number = np.arange(first, first + 500)
            writer.steps(
                500,
                {
                    "request": ["r0"] * 500,
                    "step": number,
                    "position": number,
                    "num_accepted": 3 * (number != 99_000),
                    "proposal_ids": number[:, None] + np.arange(3),
                    "emitted_ids": number[:, None] + np.arange(4),
                },
            )
            assert writer.flush()
    data = bytearray(path.read_bytes())
    places = [at for at in range(len(data)) if data.startswith(b"\x94\xa4STEP", at)]
    data[places[20] : places[180]] = bytes(places[180] - places[20])
    path.write_bytes(data)
    with spectrace.open(path) as trace:
        assert len(trace) == 100_000
        assert trace.steps.get(10_000) is trace.steps.get(50_000) is trace.steps.get(89_999) is None
        assert trace.steps[9999].step == 9999
        assert trace.steps[90_000].step == 90_000
        assert [step.step for step in trace.steps[9990:90_010]] == [
            *range(9990, 10_000),
            *range(90_000, 90_010),
        ]
        assert [step.step for step in trace.steps[90_001:9998:-1]] == [90_001, 90_000, 9999]
        assert [step.step for step in trace.steps[::30_000]] == [0, 90_000]
        assert trace.find_rejected(0) == 99_000
        assert trace.find_rejected(50_000) == 99_000
        assert trace.find_rejected(98_000, forward=False) is None
        with pytest.raises(TraceError, match="step 50,000"):
            trace.steps[50_000]
        assert len(list(trace)) == 20_000


def test_what_cannot_be_repaired_is_refused(trace: Path, tmp_path: Path) -> None:
    """No frame at all, a newer version and an existing target are refused, and nothing is left behind."""
    garbage, newer = tmp_path / "garbage", tmp_path / "newer"
    garbage.write_bytes(os.urandom(5000))
    newer.write_bytes(pack_frame(b"HEAD", 0, pack_body({"spectrace": 2})))
    out = tmp_path / "out.spectrace"
    before = sorted(tmp_path.iterdir())
    with pytest.raises(NotATrace):
        repair(garbage, out)
    with pytest.raises(UnsupportedVersion):
        repair(newer, out)
    with pytest.raises(TraceError, match="cannot be read"):
        repair(tmp_path / "missing", out)
    with pytest.raises(RecorderError, match="exists already"):
        repair(trace, trace)
    assert sorted(tmp_path.iterdir()) == before


def test_a_repaired_record_that_no_trace_can_hold_is_left_out(tmp_path: Path) -> None:
    """A record with the wrong types does not spoil the repair of the others."""
    path = write_trace(tmp_path / "t.spectrace", [step_fields(step=0)])
    data = path.read_bytes()
    at = data.index(b"\x94\xa4idxw")
    bad = pack_frame(b"gap_", 1, pack_body({"lost": "many", "reason": 5}))
    path.write_bytes(data[:at] + bad + pack_frame(b"toks", 1, pack_body({"target": {"1": "x"}})))
    report = repair(path, tmp_path / "saved.spectrace")
    assert report.steps == 1
    assert any("gap" in problem for problem in report.problems)
    with spectrace.open(tmp_path / "saved.spectrace") as saved:
        assert saved.token_text(1) == "x"
        assert saved.gaps == []
