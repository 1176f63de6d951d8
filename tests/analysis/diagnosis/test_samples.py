"""Real runs of the bundled models: healthy ones accuse nobody, each faulty one names its fault first."""

from __future__ import annotations

from pathlib import Path

import pytest

import spectrace

WORDS = {
    "eagle3-taps-shifted": "Lower the layer ids given to the engine by 1",
    "eagle3-taps-normed": "the target's final norm",
    "eagle3-feedback-normed": "before the norm: the config's norm_output is false",
    "vllm-v1-layers-as-outputs": "Raise the layer ids given to the engine by 1",
}
"""What the finding must say of the fault, not only of its kind."""
HEALTHY = (
    "draft-greedy", "draft-sampled", "prompt-lookup", "killed", "eagle3", "eagle3-tree",
    "vllm-v1-eagle3", "vllm-v2-eagle3", "vllm-v1-server",
)  # fmt: skip
FAULTY = {
    "eagle3-map-as-direct": "vocab-map/offset-read-as-direct",
    "eagle3-taps-shifted": "tap-layer/shifted",
    "eagle3-taps-normed": "tap-form/norm",
    "eagle3-no-midlayer": "weights/not-loaded",
    "eagle3-feedback-normed": "tap-form/feedback-norm",
    "eagle3-draft-kv-kept": "kv-state/not-trimmed",
    "eagle3-positions-shifted": "positions/shifted",
    "eagle3-random-head": "draft-head/not-loaded",
    "vllm-v1-layers-as-outputs": "tap-layer/shifted",
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_sample_has_no_certain_and_no_strong_finding(name: str, sample_traces: Path) -> None:
    """A short healthy run is too small at most."""
    with spectrace.open(sample_traces / f"{name}.spectrace") as trace:
        assert {finding.id for finding in spectrace.diagnose(trace).findings} <= {"workload/too-small"}


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_sample_names_its_fault_first(name: str, sample_traces: Path) -> None:
    """The first finding is the fault that was put in."""
    with spectrace.open(sample_traces / f"{name}.spectrace") as trace:
        first = spectrace.diagnose(trace).findings[0]
        assert first.id == FAULTY[name]
        assert WORDS.get(name, "") in first.summary + first.advice
