"""Each fault of the decoder leaves the text as it is, and in the trace the sign by which it can be told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spectrace
import spectrace_demo

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace_eagle3 import (  # noqa: E402
    Chain,
    Eagle3Decoder,
    Eagle3Recorder,
    Faults,
    generate_alone,
    load_draft,
)
from tests.recorders.eagle3_zoo import EOS, bundled_target, prompt_ids  # noqa: E402

pytestmark = pytest.mark.engine

NEW_TOKENS = 32
PROMPTS = (0, 2, 5)


@pytest.fixture(scope="module")
def run_with(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that gives the trace of a run with faults; greedy text is checked on the way."""
    torch.set_num_threads(1)
    made: dict[Faults, Any] = {}
    alone = {
        number: generate_alone(bundled_target(), prompt_ids(number), NEW_TOKENS, [EOS]) for number in PROMPTS
    }

    def run(**options: Any) -> Any:
        faults = Faults(**options)
        if faults not in made:
            path: Path = tmp_path_factory.mktemp("faults") / "run.spectrace"
            draft = load_draft(spectrace_demo.eagle3_path(), bundled_target())
            with (
                Eagle3Decoder(bundled_target(), draft, Chain(4), eos_ids=[EOS], faults=faults) as decoder,
                Eagle3Recorder(path, decoder, strict=True) as recorder,
            ):
                for number in PROMPTS:
                    ids = recorder.generate(prompt_ids(number), NEW_TOKENS, reference=number == PROMPTS[0])
                    assert ids == alone[number]
            made[faults] = spectrace.open(path)
        return made[faults]

    return run


def _alpha1(trace: Any) -> float:
    counts = trace.counts
    return float((counts.accepted_at or [0])[0] / counts.proposals)


def _conditional(trace: Any, position: int) -> float:
    """Share of the proposals accepted so far that are accepted at this position too."""
    counts = trace.counts
    return float(counts.accepted_at[position] / counts.reached_at[position])


def _nearest_boundaries(trace: Any) -> list[int | None]:
    """For each tap of the first prompt, the boundary of the reference that it equals."""
    rows = {ref.boundary: {row.position: row.projections for row in ref.rows} for ref in trace.references}
    found = {}
    for tap in trace.steps[0].taps:
        distance = {b: np.abs(np.subtract(at[tap.position], tap.projections)).max() for b, at in rows.items()}
        best = min(distance, key=lambda b: distance[b])
        found[tap.boundary] = best if distance[best] < 1e-2 else None
    return list(found.values())


def test_a_healthy_decoder_accepts_most_first_tokens(run_with: Callable[..., Any]) -> None:
    """What the faults are compared with; its taps are those of the reference."""
    trace = run_with()
    assert _alpha1(trace) > 0.7
    assert _nearest_boundaries(trace) == [2, 4, 5]


def test_offsets_used_as_ids_are_told_by_the_ids(run_with: Callable[..., Any]) -> None:
    """Nothing is accepted, and every proposed id is an entry of d2t."""
    trace = run_with(map_as_direct=True)
    d2t = trace.run.vocab_map.d2t
    assert trace.run.vocab_map.applied == "direct"
    assert _alpha1(trace) < 0.05
    for step in trace:
        assert [d2t[raw] for raw in step.draft_ids or ()] == list(step.proposal_ids)


def test_shifted_taps_are_told_by_the_reference(run_with: Callable[..., Any]) -> None:
    """Declared are 2, 4 and 5; the rows are those of 3, 5 and 6."""
    trace = run_with(tap_shift=1)
    assert tuple(trace.run.taps.boundaries) == (2, 4, 5)
    assert _nearest_boundaries(trace) == [3, 5, 6]
    assert _alpha1(trace) < _alpha1(run_with())


def test_normed_taps_are_told_by_the_reference(run_with: Callable[..., Any]) -> None:
    """The rows are none of the reference's, and all have nearly the same size."""
    trace = run_with(normed_taps=True)
    assert _nearest_boundaries(trace) == [None, None, None]
    sizes = [tap.rms for tap in trace.steps[0].taps if tap.boundary == 5]
    healthy = [tap.rms for tap in run_with().steps[0].taps if tap.boundary == 5]
    assert np.std(sizes) / np.mean(sizes) < np.std(healthy) / np.mean(healthy)
    assert _alpha1(trace) < _alpha1(run_with()) - 0.05


def test_a_draft_without_its_layer_is_told_by_the_weights(run_with: Callable[..., Any]) -> None:
    """Ten weights are named as missing; without its layer the draft cannot tell one depth from the next."""
    trace = run_with(no_midlayer=True)
    assert len(trace.run.draft.parameters.missing) == 10
    assert _alpha1(trace) < _alpha1(run_with()) - 0.2
    assert trace.counts.accepted_histogram[2:] == []
    assert all(len(set(step.proposal_ids)) <= 1 for step in trace)


def test_normed_feedback_leaves_the_first_token_alone(run_with: Callable[..., Any]) -> None:
    """The first token is as good as ever, the next are not, and the fed-back state has another size."""
    trace, healthy = run_with(swapped_feedback_norm=True), run_with()
    assert _alpha1(trace) > _alpha1(healthy) - 0.1
    assert _conditional(trace, 1) < _conditional(healthy, 1) - 0.1

    def ratio(run: Any) -> float:
        steps = [step.draft_inputs for step in run if step.draft_inputs and len(step.draft_inputs) > 1]
        return float(np.median([inputs[1]["rms"] / inputs[0]["rms"] for inputs in steps]))

    assert abs(np.log(ratio(trace) / ratio(healthy))) > np.log(1.5)


def test_a_cache_that_keeps_rejected_tokens_runs_ahead(run_with: Callable[..., Any]) -> None:
    """The draft's cache grows past the committed text by what was rejected; the target's does not."""
    lags = []
    for step in run_with(keep_draft_kv=True):
        if step.draft_kv_length is not None and step.request == "r0":
            lags.append(step.position - step.draft_kv_length)
            assert step.target_kv_length == step.position
    assert lags[0] == 1
    assert lags == sorted(lags, reverse=True)
    assert lags[-1] < -5


def test_shifted_positions_jump(run_with: Callable[..., Any]) -> None:
    """Between the first and the second token of a proposal the position goes up by two."""
    for step in run_with(position_shift=1):
        steps = np.diff(step.draft_positions or ())
        assert list(steps) == [2, 1, 1][: len(steps)]


def test_a_random_head_proposes_at_random(run_with: Callable[..., Any]) -> None:
    """The head is named as missing, and its entropy is nearly that of a uniform draw."""
    trace = run_with(random_head=True)
    assert list(trace.run.draft.parameters.missing) == ["lm_head.weight"]
    assert _alpha1(trace) < 0.05
    entropy = np.mean([step.draft_entropy[0] for step in trace if step.draft_entropy])
    healthy = np.mean([step.draft_entropy[0] for step in run_with() if step.draft_entropy])
    assert entropy > 0.9 * np.log(560) > healthy
