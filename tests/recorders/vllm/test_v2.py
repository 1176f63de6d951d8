"""The recorder in vLLM's V2 runner, its kernels interpreted: the same tests, and the same events as V1."""

from __future__ import annotations

from typing import Any

import pytest

from tests.recorders.serving_runs import Runs
from tests.recorders.vllm.invariants import check_emitted, check_reported, check_run

pytestmark = pytest.mark.engine

IDS = ("proposal_ids", "draft_ids", "emitted_ids", "target_ids", "num_accepted", "position", "stop")
NUMBERS = ("draft_logprobs", "draft_entropy", "target_logprobs", "target_gaps")


@pytest.mark.parametrize("name", ["eagle3", "draft", "ngram", "async", "eagle1"])
def test_a_recorded_run_is_lossless_and_its_trace_is_true(v2: Runs, name: str) -> None:
    """Tokens, decisions, positions and vLLM's own metrics agree with the trace, step by step."""
    check_run(v2[name], v2["plain"])


def test_multi_token_prediction(v2: Runs) -> None:
    """A draft that is a part of the target's own checkpoint."""
    check_run(v2["mtp"], v2["plain-mimo"])


@pytest.mark.parametrize("name", ["eagle3", "draft", "eagle1", "mtp", "dflash"])
def test_both_runners_record_the_same_events(v1: Runs, v2: Runs, name: str) -> None:
    """V1 and V2 decide alike, and the two traces hold the same ids and the same numbers."""
    assert v2[name].run.engine.runner == "V2"
    for request, steps in v1[name].steps.items():
        for one, other in zip(steps, v2[name].steps[request], strict=True):
            assert [getattr(one, field) for field in IDS] == [getattr(other, field) for field in IDS]
            for field in NUMBERS:
                _check_near(getattr(one, field), getattr(other, field))
            for tap, twin in zip(one.taps or (), other.taps or (), strict=True):
                assert (tap.boundary, tap.position) == (twin.boundary, twin.position)
                assert tap.projections == pytest.approx(twin.projections, abs=2e-2)


def _check_near(one: Any, other: Any) -> None:
    assert (one is None) == (other is None)
    assert one is None or one == pytest.approx(other, abs=2e-3)


def test_synthetic_acceptance_is_flagged(v2: Runs) -> None:
    """Acceptance that is drawn by chance is marked, and its tokens are those that vLLM returned."""
    outcome = v2["synthetic"]
    check_emitted(outcome)
    check_reported(outcome)
    assert outcome.run.verification.rule == "synthetic"
    steps = [step for own in outcome.steps.values() for step in own if step.proposal_ids]
    assert all("simulated" in step.flags for step in steps)
