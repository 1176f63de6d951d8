"""Acceptance by request, segment, context and batch row, streamed over a trace."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spectrace
from spectrace.analysis import breakdown
from spectrace.analysis.acceptance import alpha1
from spectrace.analysis.breakdown import BY, break_down
from spectrace.format.counts import Counts
from spectrace.testing import write_trace

ADDED = (
    "steps", "proposals", "drafted", "accepted", "emitted", "emitted_by_proposals", "rejected",
    "proposed_at", "reached_at", "accepted_at",
)  # fmt: skip
STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40
)


@settings(max_examples=25)
@given(STEPS, st.sampled_from(sorted(BY)))
def test_the_groups_add_up_to_the_run(steps: list[tuple[str, int, int]], by: str) -> None:
    """Nothing is counted twice or left out, sums and positions alike."""
    rows: list[dict[str, Any]] = [
        {
            "request": name,
            "step": n,
            "position": n * n,
            "proposal_ids": list(range(k)),
            "num_accepted": min(k, a),
            **({"segment": name, "batch_row": k} if a % 2 else {}),
        }
        for n, (name, k, a) in enumerate(steps)
    ]
    with TemporaryDirectory() as folder, spectrace.open(write_trace(Path(folder) / "t", rows)) as trace:
        found = {name: counts for name, counts, _ in break_down(trace, by)}
        whole = trace.counts
    total = Counts()
    for counts in found.values():
        total.add(counts)
    assert {name: getattr(total, name) for name in ADDED} == {name: getattr(whole, name) for name in ADDED}
    if by == "request":
        assert list(found) == list(dict.fromkeys(name for name, *_ in steps))
        for name, counts in found.items():
            own = [(k, min(k, a)) for other, k, a in steps if other == name and k]
            assert (counts.proposals, counts.accepted) == (len(own), sum(a for _, a in own))
            assert alpha1(counts) == (sum(a > 0 for _, a in own) / len(own) if own else None)


def groups(tmp_path: Path, by: str, rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Name and steps of each group."""
    with spectrace.open(write_trace(tmp_path / "t", rows)) as trace:
        return [(name, counts.steps) for name, counts, _ in break_down(trace, by)]


def test_contexts_double_from_bucket_to_bucket(tmp_path: Path) -> None:
    """A position lies in the bucket of its power of two; the buckets ascend."""
    rows = [{"step": n, "position": at} for n, at in enumerate([4096, 0, 1, 2, 3, 4, 7, 8, 4095, 2**40])]
    assert groups(tmp_path, "context", rows) == [
        ("0", 1), ("1", 1), ("2-3", 2), ("4-7", 2), ("8-15", 1), ("2,048-4,095", 1), ("4,096-8,191", 1),
        (f"{2**40:,}-{2**41 - 1:,}", 1),
    ]  # fmt: skip


def test_batch_rows_ascend_and_what_lacks_one_is_said(tmp_path: Path) -> None:
    """Row 10 stands behind row 2; steps without a row are a group of their own."""
    rows = [{"step": 0, "batch_row": 10}, {"step": 1, "batch_row": 2}, {"step": 2}]
    assert groups(tmp_path, "batch_row", rows) == [("not recorded", 1), ("2", 1), ("10", 1)]


def test_a_trace_without_the_field_is_one_group(tmp_path: Path) -> None:
    """Nothing is invented where nothing was recorded."""
    assert groups(tmp_path, "segment", [{"step": n} for n in range(3)]) == [("not recorded", 3)]


def test_more_groups_than_anybody_reads_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that makes up a row for every step costs no memory; rows at the edge of 64 bits are rows."""
    monkeypatch.setattr(breakdown, "MAX_GROUPS", 4)
    rows = [{"step": n, "batch_row": 2**62 - n} for n in range(40)]
    found = groups(tmp_path, "batch_row", rows)
    assert found[-1] == ("others", 36)
    assert len(found) == 5


def test_with_very_many_groups_the_deepest_positions_share_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables stay small; what is left of the positions is still right."""
    monkeypatch.setattr(breakdown, "MAX_CELLS", 12)
    rows = [
        {"request": f"r{n}", "step": 0, "proposal_ids": list(range(9)), "num_accepted": 5} for n in range(4)
    ]
    with spectrace.open(write_trace(tmp_path / "t", rows)) as trace:
        counts = {name: counts for name, counts, _ in break_down(trace, "request")}["r3"]
    assert (counts.proposed_at, counts.accepted_at, counts.drafted, counts.accepted) == ([1, 1], [1, 1], 9, 5)


def test_a_request_in_two_files_is_one(tmp_path: Path) -> None:
    """Ranks of one run may both name a request."""
    paths = [write_trace(tmp_path / f"{n}.spectrace", [{"request": "r7", "rank": n}] * 2) for n in range(2)]
    with spectrace.open(paths) as trace:
        assert [(name, counts.steps) for name, counts, _ in break_down(trace, "request")] == [("r7", 4)]


def test_progress_ends_at_the_number_of_steps(tmp_path: Path) -> None:
    """Whoever draws a bar is told how far the scan is."""
    seen: list[int] = []
    with spectrace.open(write_trace(tmp_path / "t", [{"step": n} for n in range(700)])) as trace:
        list(break_down(trace, "request", seen.append))
    assert seen == sorted(seen)
    assert seen[-1] == 700
