"""Methods that foretell several tokens at once, and lookups: as true as others, and accused of nothing."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from spectrace.report.command import command_line
from tests.recorders.fitted_drafts import BLOCK_LAYERS
from tests.recorders.serving_runs import Outcome, Runs
from tests.recorders.vllm import scenarios
from tests.recorders.vllm.invariants import check_run

pytestmark = pytest.mark.engine


def proposals(outcome: Outcome) -> list[Any]:
    """Steps with a proposal that was drafted before the trace's eyes."""
    return [step for steps in outcome.steps.values() for step in steps if step.proposal_ids]


def check_healthy(outcome: Outcome, plain: Outcome, method: str) -> None:
    """True, named, of use, and accused of nothing."""
    check_run(outcome, plain)
    assert outcome.run.method == method
    assert sum(step.num_accepted for step in proposals(outcome)) > 10
    assert outcome.findings == []


@pytest.mark.parametrize("name", ["medusa", "dflash"])
def test_the_v1_runner(v1: Runs, name: str) -> None:
    """Medusa and DFlash."""
    check_healthy(v1[name], v1["plain"], name)


@pytest.mark.parametrize(
    ("name", "method"), [("dflash", "dflash"), ("dspark", "other"), ("ngram-gpu", "ngram")]
)
def test_the_v2_runner(v2: Runs, name: str, method: str) -> None:
    """DFlash, DSpark and the lookup on the device."""
    check_healthy(v2[name], v2["plain"], method)


@pytest.mark.skipif("suffix" not in scenarios.V1, reason="arctic-inference is not installed here")
def test_suffix_decoding(v1: Runs) -> None:
    """A lookup that proposes as much as it is sure of: target, decisions and proposals are recorded."""
    outcome = v1["suffix"]
    check_healthy(outcome, v1["plain"], "suffix")
    assert len({len(step.proposal_ids) for step in proposals(outcome)}) > 1
    assert all(step.target_logprobs is not None and step.draft_ids is None for step in proposals(outcome))
    assert {"draft_ids", "draft_logprobs", "taps"} <= set(outcome.run.capture.unavailable)


@pytest.mark.parametrize("name", ["medusa", "dflash"])
def test_each_head_has_its_own_values(v1: Runs, name: str) -> None:
    """The first choice of each position's distribution is the token that was proposed there."""
    _check_values(v1[name])


@pytest.mark.parametrize("name", ["dflash", "dspark"])
def test_each_token_of_a_block_has_its_own_values(v2: Runs, name: str) -> None:
    """Of DSpark with what the token before it adds: without that, other tokens would come first."""
    _check_values(v2[name])


def _check_values(outcome: Outcome) -> None:
    found = proposals(outcome)
    assert len(found) > 20
    for step in found:
        assert [top[0][0] for top in step.draft_top] == list(step.draft_ids)
        assert [top[0][1] for top in step.draft_top] == pytest.approx(step.draft_logprobs, abs=1e-4)


def test_dspark_among_a_few_candidates(v2: Runs) -> None:
    """With ``dspark_draft_topk`` its logits are made where no hook looks; the rest is as true as before."""
    outcome = v2["dspark-candidates"]
    check_healthy(outcome, v2["plain"], "other")
    assert "draft_logprobs" in outcome.run.capture.unavailable
    assert all(step.draft_logprobs is None and step.taps for step in proposals(outcome))


def test_a_draft_of_another_tokenizer(v1: Runs) -> None:
    """Its raw ids are its own, and both runs of the one draft say and propose the same."""
    outcome, twin = v1["other-tokenizer"], v1["draft"]
    check_healthy(outcome, v1["plain"], "draft_model")
    assert outcome.run.vocab_map.source == "tokenizers"
    for name, steps in outcome.steps.items():
        for step, same in zip(steps, twin.steps[name], strict=True):
            assert step.proposal_ids == same.proposal_ids
            if step.proposal_ids:
                assert step.draft_logprobs == pytest.approx(same.draft_logprobs, abs=1e-4)
                size = outcome.run.target.vocab_size
                expected = [raw if raw < 3 else size + 2 - raw for raw in same.draft_ids]
                assert list(step.draft_ids) == expected


def test_medusa_reads_the_last_state(v1: Runs) -> None:
    """The state after the final norm is tapped; why there are no positions and inputs is said."""
    run = v1["medusa"].run
    assert run.taps.normed
    assert list(run.taps.boundaries) == [run.target.num_layers]
    assert {"draft_positions", "draft_inputs"} <= set(run.capture.unavailable)
    assert not any("hook" in field for field in run.capture.unavailable)
    for step in proposals(v1["medusa"]):
        assert [tap.position for tap in step.taps] == [step.position - 1]


def test_blocks_stand_where_their_tokens_will(v1: Runs, v2: Runs) -> None:
    """DFlash drafts a token from its own position, DSpark from the one before."""
    for outcome, offset in ((v1["dflash"], 0), (v2["dflash"], 0), (v2["dspark"], -1)):
        for step in proposals(outcome):
            expected = [step.position + offset + at for at in range(len(step.proposal_ids))]
            assert list(step.draft_positions) == expected


@pytest.mark.parametrize("name", ["dflash", "dspark"])
def test_layers_that_a_block_draft_declares_are_outputs(v2: Runs, name: str) -> None:
    """Each is a boundary one higher, and the states of both are in the trace."""
    run = v2[name].run
    boundaries = [layer + 1 for layer in BLOCK_LAYERS]
    assert (list(run.taps.declared), run.taps.numbering) == (list(BLOCK_LAYERS), "output")
    assert (list(run.taps.boundaries), run.taps.origin) == (boundaries, "config")
    for step in proposals(v2[name]):
        assert [(tap.boundary, tap.position) for tap in step.taps] == [
            (boundary, step.position - 1) for boundary in boundaries
        ]


def test_a_place_that_stays_empty_is_no_missing_weight(v1: Runs) -> None:
    """Most DFlash drafts have no embedding of their own for the mask, and vLLM a place for one."""
    assert v1["dflash"].run.draft.parameters.missing == ()


def speculative_config(outcome: Outcome) -> Any:
    """What a report gives vLLM to speculate with."""
    words = shlex.split(command_line(outcome.run) or "")
    return json.loads(words[words.index("--speculative-config") + 1])


@pytest.mark.parametrize(("name", "model"), [("medusa", "DRAFT"), ("dspark", "DRAFT"), ("ngram-gpu", None)])
def test_a_report_asks_for_the_method_as_vllm_calls_it(
    v1: Runs, v2: Runs, name: str, model: str | None
) -> None:
    """Also of a method for which traces have no word."""
    config = speculative_config((v1 if name in scenarios.V1 else v2)[name])
    assert (config["method"], config.get("model")) == (name.replace("-", "_"), model)


def test_a_report_repeats_what_one_method_alone_has(v1: Runs, v2: Runs) -> None:
    """Parallel drafting, the candidates of DSpark, and the rates of acceptance that is drawn by chance."""
    assert speculative_config(v1["parallel"])["parallel_drafting"] is True
    assert speculative_config(v2["dspark-candidates"])["dspark_draft_topk"] == 64
    assert speculative_config(v2["synthetic"])["synthetic_acceptance_rates"] == [0.8, 0.5, 0.3]
