"""The recorder in real engines of SGLang on a CPU: output, decisions, counts and what the draft said."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

import spectrace
from spectrace.cli.diff import command as diff
from tests.recorders.serving_runs import Runs
from tests.recorders.sglang.invariants import check_emitted, check_lossless, check_run, is_prefill, parents_of

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("name", ["chain", "tree", "long", "overlap", "spawned", "standalone"])
def test_a_recorded_run_is_lossless_and_its_trace_is_true(runs: Runs, name: str) -> None:
    """Tokens are those of a run without speculation; decisions and SGLang's own counts agree with it."""
    check_lossless(runs[name], runs["plain"])
    check_run(runs[name])


def test_the_recorder_changes_no_token(runs: Runs) -> None:
    """The same engine without a recorder returns the same, and counts the same."""
    recorded, unrecorded = (list(runs[name].outputs.values()) for name in ("chain", "chain-unrecorded"))
    assert recorded == unrecorded


@pytest.mark.parametrize("name", ["chain", "tree", "long"])
def test_a_healthy_run_is_accused_of_nothing(runs: Runs, name: str) -> None:
    """No finding, and the map is cleared by name."""
    assert runs[name].findings == []
    assert "vocab-map" in runs[name].cleared


@pytest.mark.parametrize("name", ["chain", "tree"])
def test_raw_ids_go_through_the_map(runs: Runs, name: str) -> None:
    """Each node's raw id plus its offset is the id that the target was asked about."""
    outcome = runs[name]
    d2t = outcome.run.vocab_map.d2t
    for step in (step for steps in outcome.steps.values() for step in steps):
        for raw, mapped in zip(step.draft_ids or (), step.proposal_ids, strict=True):
            assert raw + d2t[raw] == mapped


def test_a_tree_holds_the_best_paths(runs: Runs) -> None:
    """Every node is among the first choices after its parent, and no kept path scores below its parent's."""
    for step in (step for steps in runs["tree"].steps.values() for step in steps if step.proposal_ids):
        scores: list[float] = []
        for node, parent in enumerate(parents_of(step)):
            first = [raw for raw, _ in step.draft_top[node][:2]]
            assert step.draft_ids[node] in first
            scores.append((0.0 if parent < 0 else scores[parent]) + step.draft_logprobs[node])
            assert math.isfinite(scores[-1])
        assert max(Counter(parents_of(step)).values()) == 2


def test_the_states_are_those_of_the_boundaries_in_use(runs: Runs) -> None:
    """One row per boundary for the root, up to eight for a prompt; the header names the same boundaries."""
    outcome = runs["chain"]
    assert list(outcome.run.taps.boundaries) == [2, 4, 5]
    for steps in outcome.steps.values():
        assert {tap.boundary for tap in steps[0].taps} == {2, 4, 5}
        assert 1 < len({tap.position for tap in steps[0].taps}) <= 8
        for step in steps[1:]:
            assert [(tap.boundary, tap.position) for tap in step.taps] == [
                (k, step.position - 1) for k in (2, 4, 5)
            ]


def test_what_a_killed_engine_leaves_is_whole(runs: Runs) -> None:
    """SGLang kills its scheduler when it shuts down; every step is in the file all the same."""
    with spectrace.open(runs["chain"].trace) as trace:
        assert trace.state == "unclosed"
        assert len(list(trace)) == sum(len(steps) for steps in runs["chain"].steps.values())
    check_emitted(runs["chain"])


def test_chunks_and_a_cache_of_prefixes(runs: Runs) -> None:
    """A prompt that is read in parts is one step, with the states of its last part."""
    outcome = runs["chunked"]
    check_run(outcome)
    for name, steps in outcome.steps.items():
        assert outcome.outputs[name]["prompt_tokens"] > 32
        assert [step.step for step in steps if is_prefill(step)] == [0]


def test_ids_alone(runs: Runs) -> None:
    """SPECTRACE_CAPTURE=ids keeps tokens and decisions, and neither probabilities nor states."""
    check_run(runs["ids"])
    steps = [step for own in runs["ids"].steps.values() for step in own if step.proposal_ids]
    assert all(step.draft_ids is not None for step in steps)
    assert all((step.target_logprobs, step.draft_logprobs, step.taps) == (None, None, None) for step in steps)


def test_a_broken_hook_costs_its_fields_only(runs: Runs) -> None:
    """Serving goes on, the reason is in the header, and the rest is recorded."""
    outcome = runs["broken-hook"]
    check_lossless(outcome, runs["plain"])
    check_emitted(outcome)
    assert any("broken on purpose" in reason for reason in outcome.run.capture.unavailable.values())
    assert all(step.target_ids is None for steps in outcome.steps.values() for step in steps)
    assert all(step.draft_logprobs is not None for steps in outcome.steps.values() for step in steps[1:])


def test_vllm_and_sglang_do_the_same(runs: Runs) -> None:
    """A diff of the two engines' traces of the same prompts finds no first difference but where one ends."""
    vllm = Path(__file__).parents[3] / "sample_traces" / "vllm-v1-eagle3.spectrace"
    found = json.loads(CliRunner().invoke(diff, [str(vllm), str(runs["long"].trace), "--json"]).output)
    assert found["alignment"]["pairs"] == 6
    compared = found["first_differences"]
    assert compared["proposal"]["compared"] > 40
    fields = ("prompt", "draft_positions", "kv_lengths", "fed_back", "proposal", "target_pick", "decision")
    assert {field: compared[field]["differing"] for field in fields} == dict.fromkeys(fields, 0)
    assert all(tap["is_same"] for tap in found["taps"])
