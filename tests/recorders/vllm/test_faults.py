"""Faults of real vLLM engines, each named from its trace alone."""

from __future__ import annotations

import pytest

import spectrace
from spectrace.analysis.diagnosis.examine import diagnose
from spectrace.analysis.diagnosis.verdict import Strength
from tests.recorders.serving_runs import Runs
from tests.recorders.vllm.faults import FAULTS

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_first(faulty: Runs, name: str) -> None:
    """The first finding is the fault that was made.

    What was not loaded holds what the memory held before, which may be no number: then that comes first.
    """
    names = faulty[name].findings
    if name == "midlayer-missing" and names[0] == "nonfinite/values":
        del names[0]
    assert names[0] == FAULTS[name].finding


def test_a_healthy_run_is_accused_of_nothing(v1: Runs) -> None:
    """The same pair without a fault has no finding."""
    assert v1["eagle3"].findings == []


def test_an_open_bug_of_vllm_is_named(faulty: Runs) -> None:
    """Sampling with draft probabilities on a CPU reads uninitialised temperatures (vllm-project/vllm#55005).

    The draft is the target, so every token should be accepted; the trace says that no rule explains what was.
    """
    outcome = faulty["sampled"]
    with spectrace.open(outcome.trace) as trace:
        findings = {finding.id: finding for finding in diagnose(trace).findings}
    assert findings["verification/biased"].strength is Strength.STRONG
