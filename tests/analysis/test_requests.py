"""Acceptance per request, streamed over a trace."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

import spectrace
from spectrace.analysis.acceptance import alpha1
from spectrace.analysis.requests import per_request
from spectrace.format.counts import Counts
from spectrace.testing import write_trace

SUMS = ("steps", "proposals", "drafted", "accepted", "emitted", "emitted_by_proposals", "rejected")
STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40
)


@settings(max_examples=25)
@given(STEPS)
def test_sums_of_all_requests_are_those_of_the_run(steps: list[tuple[str, int, int]]) -> None:
    """Nothing is counted twice or left out, and each request is counted from its own steps."""
    rows = [
        {"request": name, "step": n, "proposal_ids": list(range(k)), "num_accepted": min(k, a)}
        for n, (name, k, a) in enumerate(steps)
    ]
    with TemporaryDirectory() as folder, spectrace.open(write_trace(Path(folder) / "t", rows)) as trace:
        found = per_request(trace)
        whole = trace.counts
    assert list(found) == list(dict.fromkeys(name for name, *_ in steps))
    total = Counts()
    for counts in found.values():
        total.add(counts)
    assert all(getattr(total, name) == getattr(whole, name) for name in SUMS)
    for name, counts in found.items():
        own = [(k, min(k, a)) for other, k, a in steps if other == name and k]
        assert (counts.proposals, counts.accepted) == (len(own), sum(a for _, a in own))
        assert alpha1(counts) == (sum(a > 0 for _, a in own) / len(own) if own else None)


def test_progress_ends_at_the_number_of_steps(tmp_path: Path) -> None:
    """Whoever draws a bar is told how far the scan is."""
    seen: list[int] = []
    with spectrace.open(write_trace(tmp_path / "t", [{"step": n} for n in range(700)])) as trace:
        per_request(trace, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 700


def test_only_sums_and_the_first_position_are_filled(tmp_path: Path) -> None:
    """What a scan of five columns cannot know stays empty."""
    with spectrace.open(write_trace(tmp_path / "t", [{"num_accepted": 2, "step_ns": 5}])) as trace:
        counts = per_request(trace)["r0"]
    empty = {item.name for item in fields(Counts) if not getattr(counts, item.name)}
    assert empty == {"malformed", "reached_at", "accepted_histogram", "final_kinds", "stops", "timed"}
