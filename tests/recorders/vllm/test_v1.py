"""The recorder in vLLM's V1 runner, in-process: real engines, tiny models, greedy."""

from __future__ import annotations

import pytest

import spectrace
from tests.recorders.serving_runs import Runs
from tests.recorders.vllm.invariants import check_lossless, check_run
from tests.recorders.vllm.scenarios import K

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("name", ["eagle3", "draft", "self", "ngram", "ids", "unpadded"])
def test_a_recorded_run_is_lossless_and_its_trace_is_true(v1: Runs, name: str) -> None:
    """Tokens, decisions, positions and vLLM's own metrics agree with the trace, step by step."""
    check_run(v1[name], v1["plain"])


def test_a_draft_that_is_the_target_is_always_right(v1: Runs) -> None:
    """Self-drafting accepts everything, and both sides give the same probabilities."""
    for steps in v1["self"].steps.values():
        for step in steps:
            assert step.num_accepted == min(len(step.proposal_ids), len(step.emitted_ids))
            if step.proposal_ids:
                assert step.draft_logprobs == pytest.approx(step.target_logprobs, abs=1e-3)


def test_a_draft_that_draws_is_read_before_its_temperature(v1: Runs) -> None:
    """Drawn at half the temperature, the target's own tokens have the target's own probabilities."""
    steps = [step for own in v1["self-drawn"].steps.values() for step in own if step.proposal_ids]
    assert len(steps) > 20
    for step in steps:
        assert step.draft_logprobs == pytest.approx(step.target_logprobs, abs=1e-3)


def test_the_head_is_described(v1: Runs) -> None:
    """Map, boundaries, weights and rotary settings stand in the header, as vLLM really has them."""
    run = v1["eagle3"].run
    assert (run.engine.name, run.engine.runner, run.method) == ("vllm", "V1", "eagle3")
    assert run.vocab_map.applied == "offset"
    assert [i + offset for i, offset in enumerate(run.vocab_map.d2t)] == list(run.vocab_map.t2d)
    assert list(run.taps.boundaries) == list(run.taps.declared) == [2, 4, 5]
    assert run.taps.origin == "config"
    assert run.draft.parameters.missing == run.draft.parameters.unexpected == ()
    assert run.draft.head_rows == len(run.vocab_map.d2t)
    assert run.draft.rope["rope_theta"] == pytest.approx(run.draft.rope_declared["rope_theta"])
    assert run.verification.rule == "greedy"
    assert run.sampling.temperature == 0.0


def test_raw_ids_lead_to_mapped_ids(v1: Runs) -> None:
    """Each raw id, which is read off the head's own logits, maps to the token that was verified."""
    run = v1["eagle3"].run
    for steps in v1["eagle3"].steps.values():
        for step in steps:
            assert [raw + run.vocab_map.d2t[raw] for raw in step.draft_ids or ()] == list(step.proposal_ids)


def test_chunked_prefill(v1: Runs) -> None:
    """What a partial prefill samples is thrown away; prompts longer than a chunk are recorded like others."""
    check_run(v1["chunked"], v1["plain-long"])


def test_prefix_caching(v1: Runs) -> None:
    """A run with a prefix cache is as true as one without."""
    check_run(v1["cached"], v1["plain-long"])


def test_every_third_request(v1: Runs) -> None:
    """Requests that are not sampled leave nothing, and those that are lose nothing."""
    outcome = v1["every-third"]
    check_lossless(outcome, v1["plain"])
    assert set(outcome.steps) == {"0", "3"}
    for name, steps in outcome.steps.items():
        assert [t for step in steps for t in step.emitted_ids] == outcome.outputs[name]["token_ids"]


def test_the_flight_recorder_keeps_within_its_bytes(v1: Runs) -> None:
    """The newest steps are there, within the bytes that were given."""
    outcome = v1["flight"]
    sizes = [path.stat().st_size for path in outcome.folder.glob("*.spectrace*")]
    assert sum(sizes) <= 60_000
    with spectrace.open(outcome.trace) as trace:
        last = max(step.engine_step or 0 for step in trace)
    assert last >= 8


def test_a_broken_hook_does_not_break_serving(v1: Runs) -> None:
    """VLLM returns the same tokens, and the trace says which hook failed and why."""
    outcome = v1["broken-hook"]
    check_lossless(outcome, v1["plain"])
    assert any("broken on purpose" in reason for reason in outcome.run.capture.unavailable.values())


def test_texts_that_end_by_themselves(v1: Runs) -> None:
    """Where vLLM stops at the end of a text, the last step says so, and holds nothing behind it."""
    outcome = v1["to-the-end"]
    check_run(outcome, v1["plain-to-the-end"])
    reasons = {"stop": "eos", "length": "length"}
    for name, output in outcome.outputs.items():
        assert outcome.steps[name][-1].stop == reasons[output["finish_reason"]]
        assert all(step.stop is None for step in outcome.steps[name][:-1])
    assert "stop" in {output["finish_reason"] for output in outcome.outputs.values()}


@pytest.mark.parametrize(
    ("name", "plain", "method"),
    [
        ("eagle1", "plain", "eagle"),
        ("parallel", "plain", "eagle3"),
        ("custom", "plain", "other"),
        ("mtp", "plain-mimo", "mtp"),
    ],
)
def test_other_methods(v1: Runs, name: str, plain: str, method: str) -> None:
    """EAGLE-1, parallel drafting, a proposer of one's own, MTP: as true, and accused of nothing."""
    outcome = v1[name]
    check_run(outcome, v1[plain])
    assert outcome.run.method == method
    assert sum(step.num_accepted for steps in outcome.steps.values() for step in steps) > 10
    assert outcome.findings == []


@pytest.mark.parametrize("name", ["eagle1", "mtp"])
def test_a_draft_that_reads_the_last_state(v1: Runs, name: str) -> None:
    """EAGLE-1 and MTP are fed what the target returns, normed; position by position the trace has it."""
    run = v1[name].run
    assert run.taps.normed
    assert list(run.taps.boundaries) == [run.target.num_layers]
    for steps in v1[name].steps.values():
        for step in (step for step in steps if step.proposal_ids):
            assert [tap.position for tap in step.taps] == [step.position - 1]
            assert list(step.draft_positions) == [step.position - 2 + at for at in range(K)]
            assert len(step.draft_inputs) == K


def test_parallel_drafting_gives_every_depth(v1: Runs) -> None:
    """One forward for all depths: each has its own probabilities; what it cannot give is named."""
    run = v1["parallel"].run
    assert {"draft_positions", "draft_inputs"} <= set(run.capture.unavailable)
    for steps in v1["parallel"].steps.values():
        for step in (step for step in steps if step.proposal_ids):
            assert [top[0][0] for top in step.draft_top] == list(step.draft_ids)
            assert [raw + run.vocab_map.d2t[raw] for raw in step.draft_ids] == list(step.proposal_ids)
