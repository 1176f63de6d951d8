"""The reference decoder beside vLLM: one EAGLE-3 pair, two engines, the same events."""

from __future__ import annotations

from pathlib import Path

import pytest

import spectrace
from tests.recorders.serving_runs import Runs

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def reference(models: Path, v1: Runs, tmp_path_factory: pytest.TempPathFactory) -> list[list[object]]:
    """Steps of the reference decoder for the prompts of the scenario, in the order of the requests."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    from spectrace_eagle3 import Chain, Eagle3Decoder, Eagle3Recorder, load_draft

    target = AutoModelForCausalLM.from_pretrained(models / "target", dtype=torch.float32)
    path = tmp_path_factory.mktemp("reference") / "run.spectrace"
    with (
        Eagle3Decoder(target, load_draft(models / "eagle3", target), plan=Chain(3)) as decoder,
        Eagle3Recorder(path, decoder) as recorder,
    ):
        for output in v1["eagle3"].outputs.values():
            # Longer than vLLM was asked for: this decoder proposes no more than may still be committed.
            recorder.generate(output["prompt_ids"], 40)
    found: dict[str, list[object]] = {}
    with spectrace.open(path) as trace:
        for step in sorted(trace, key=lambda step: (step.request, step.step)):
            found.setdefault(step.request, []).append(step)
    return [found[f"r{at}"] for at in range(len(found))]


def test_vllm_does_what_the_reference_decoder_does(reference: list[list[object]], v1: Runs) -> None:
    """Proposals, raw ids, decisions and tokens are the same, step by step; the limit cuts only the last."""
    for expected, steps in zip(reference, v1["eagle3"].steps.values(), strict=True):
        for at, (one, other) in enumerate(zip(expected, steps)):
            for field in ("proposal_ids", "draft_ids", "target_ids", "position"):
                assert getattr(one, field) == getattr(other, field), (field, one, other)
            if at + 1 < len(steps):
                for field in ("emitted_ids", "num_accepted", "final_kind"):
                    assert getattr(one, field) == getattr(other, field), (field, one, other)


def test_the_states_are_those_of_the_predicted_boundaries(reference: list[list[object]], v1: Runs) -> None:
    """What vLLM feeds its draft at a position is what the reference decoder taps there."""
    compared = 0
    for expected, steps in zip(reference, v1["eagle3"].steps.values(), strict=True):
        rows = {
            (tap.boundary, tap.position): tap.projections
            for step in expected
            for tap in step.taps  # type: ignore[attr-defined]
        }
        for tap in (tap for step in steps for tap in step.taps):
            if (tap.boundary, tap.position) in rows:
                assert tap.projections == pytest.approx(rows[tap.boundary, tap.position], abs=2e-2)
                compared += 1
    assert compared > 100
