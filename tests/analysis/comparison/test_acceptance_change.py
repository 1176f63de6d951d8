"""Is one run accepted otherwise, and how far can that be told?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace import Trace, compare
from spectrace.analysis.acceptance import METRICS, per_position

Traced = Callable[..., Trace]
Cut = Callable[..., list[dict[str, Any]]]
SAMPLES = Path(__file__).parents[3] / "sample_traces"


@pytest.mark.parametrize("name", ["eagle3", "eagle3-tree", "draft-greedy", "prompt-lookup", "draft-sampled"])
def test_the_numbers_are_those_of_stats(name: str) -> None:
    """Where every request has a partner, counts agree with those of the index, trees included."""
    with (
        spectrace.open(SAMPLES / f"{name}.spectrace") as a,
        spectrace.open(SAMPLES / f"{name}.spectrace") as b,
    ):
        found = compare(a, b).acceptance
        counts = a.counts
    expected = {metric.name: metric.value(counts) for metric in METRICS}
    assert len(found.overall) == 3
    for measure in found.overall:
        assert measure.values[0] == pytest.approx(expected[measure.name])
    by_position = [p.conditional for p in per_position(counts)][: len(found.positions)]
    assert [measure.values[1] for measure in found.positions] == by_position


def test_a_difference_is_shown_when_its_interval_leaves_zero_out(traced: Traced, cut: Cut) -> None:
    """Forty steps tell all from nothing; two do not."""
    few = compare(traced(cut([1] * 6, [1, 4])), traced(cut([1] * 6, [1, 1])))
    assert not few.acceptance.is_shown
    text = list(range(1, 160))
    many = compare(traced(cut(text, [4] * 40)), traced(cut(text, [1] * 40)))
    assert many.acceptance.is_shown
    alpha1 = many.acceptance.overall[0]
    assert alpha1.change is not None
    assert alpha1.change.high < 0


def test_simulated_acceptance_does_not_count(traced: Traced, cut: Cut) -> None:
    """An engine that is told how much to accept says nothing of its draft."""
    steps = cut(list(range(1, 40)), [3] * 12)
    found = compare(traced(steps), traced([{**step, "flags": ["simulated"]} for step in steps]))
    assert found.acceptance.proposals == (13, 0)
    assert found.acceptance.simulated == (0, 13)
    assert found.acceptance.overall[0].change is None


def test_a_sum_is_no_simulated_proposal(traced: Traced, cut: Cut) -> None:
    """The one step that stands for many rounds counts nowhere as a proposal."""
    steps = cut(list(range(1, 40)), [3] * 12)
    found = compare(traced(steps), traced([{**step, "flags": ["summed"]} for step in steps]))
    assert found.acceptance.proposals == (13, 0)
    assert found.acceptance.simulated == (0, 0)


def test_only_paired_requests_count(traced: Traced, cut: Cut) -> None:
    """A request that one trace alone has would make it another workload."""
    requests = [{"request": name, "prompt_digest": f"sha256:{name}"} for name in ("r0", "alone")]
    alone = cut(list(range(1, 30)), [1] * 20, request="alone")
    shared = cut(list(range(1, 30)), [3] * 9)
    found = compare(traced([*shared, *alone], None, requests), traced(shared, None, requests[:1]))
    assert found.acceptance.proposals == (len(shared), len(shared))
