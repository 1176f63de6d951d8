"""Times of steps, and what speculation gains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spectrace.analysis.timing import PHASES, mean_ns, speedup, token_ns
from spectrace.format.counts import Counts, count_steps
from spectrace.format.shredding import shred
from spectrace.testing import step_fields

TIMED = Counts(proposals=4, emitted_by_proposals=8, timed={"step_ns": [4, 8_000]})


def test_only_steps_with_a_proposal_are_timed() -> None:
    """A prefill without a proposal takes long and says nothing of speculation."""
    rows = [
        {**step_fields(proposal_ids=ids, draft_ns=ns, verify_ns=ns, step_ns=ns), "request": 0}
        for ids, ns in (([], 9_000), ([5], 100), ([5, 6], 300))
    ]
    counts = count_steps(shred(rows), len(rows))
    assert [mean_ns(counts, phase) for phase in PHASES] == [200, 200, 200]


def test_a_phase_that_nobody_timed_is_missing() -> None:
    """Without times there is no mean, no time per token and no speedup."""
    counts = Counts(proposals=4, emitted_by_proposals=8)
    assert mean_ns(counts, "draft_ns") is None
    assert token_ns(counts) is None
    assert speedup(counts, {"token_ns": 5}) is None


@pytest.mark.parametrize("baseline", [None, {}, {"token_ns": None}, {"token_ns": "fast"}, {"token_ns": True}])
def test_a_baseline_that_is_no_time_gives_no_speedup(baseline: Mapping[str, Any] | None) -> None:
    """A header out of a stranger's trace may hold anything under token_ns."""
    assert speedup(TIMED, baseline) is None


def test_speedup_is_the_time_without_over_the_time_with() -> None:
    """Two tokens per step of 2,000 ns are 1,000 ns each; plain tokens of 3,000 ns take three times that."""
    assert token_ns(TIMED) == 1_000
    assert speedup(TIMED, {"token_ns": 3_000}) == 3


@pytest.mark.parametrize("pair", [[], [3], [0, 0], [1, 2, 3]])
def test_an_index_with_a_malformed_pair_is_no_exception(pair: list[int]) -> None:
    """The counts of a damaged index may have the wrong length."""
    assert mean_ns(Counts(timed={"draft_ns": pair}), "draft_ns") is None
