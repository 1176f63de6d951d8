"""Ways of speculating in real SGLang beside EAGLE-3: as true, and accused of nothing that is not so."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from spectrace.report.command import command_line
from tests.recorders.serving_runs import Outcome, Runs
from tests.recorders.sglang.invariants import check_lossless, check_run, parents_of

pytestmark = pytest.mark.engine


def proposals(outcome: Outcome) -> list[Any]:
    """Steps with a proposal."""
    return [step for steps in outcome.steps.values() for step in steps if step.proposal_ids]


@pytest.mark.parametrize(
    ("name", "plain", "method"), [("eagle1", "plain", "eagle"), ("mtp", "plain-mimo", "mtp")]
)
def test_a_draft_that_reads_the_last_state(runs: Runs, name: str, plain: str, method: str) -> None:
    """EAGLE-1, and a layer of the target's own: decisions, states, positions and inputs of every depth."""
    outcome = runs[name]
    check_lossless(outcome, runs[plain])
    check_run(outcome)
    run = outcome.run
    assert run.method == method
    assert sum(step.num_accepted for step in proposals(outcome)) > 5
    assert outcome.findings == []
    assert (list(run.taps.boundaries), run.taps.normed) == ([run.target.num_layers], True)
    for step in proposals(outcome):
        assert [tap.position for tap in step.taps] == [step.position - 1]
        assert list(step.draft_positions) == [step.position - 2 + at for at in range(len(step.proposal_ids))]
        assert len(step.draft_inputs) == len(step.proposal_ids)
        assert [top[0][0] for top in step.draft_top] == list(step.draft_ids)


def test_a_layer_of_the_targets_own_lacks_no_weight(runs: Runs) -> None:
    """Its weights stand in the target's checkpoint under other names, and so none is called missing."""
    assert runs["mtp"].run.draft.parameters is None


def test_a_lookup(runs: Runs) -> None:
    """Trees of what was found, decisions and the target's values; what a lookup has not is named."""
    outcome = runs["ngram"]
    check_lossless(outcome, runs["plain"])
    check_run(outcome)
    assert outcome.run.method == "ngram"
    assert outcome.findings == []
    assert {"draft_ids", "draft_logprobs", "taps"} <= set(outcome.run.capture.unavailable)
    assert sum(step.num_accepted for step in proposals(outcome)) > 0
    assert any(list(parents_of(step)) == [-1, 0, 1] for step in proposals(outcome))
    assert any(list(parents_of(step)).count(-1) > 1 for step in proposals(outcome))
    assert all(step.target_logprobs is not None for step in proposals(outcome))


def test_a_draft_that_never_reads_the_first_token_is_named(runs: Runs) -> None:
    """SGLang runs a stand-alone draft as it runs an EAGLE head, one position early: docs/upstream.md."""
    assert runs["standalone"].findings == ["positions/shifted"]


@pytest.mark.parametrize(("name", "has_draft"), [("eagle1", True), ("standalone", True), ("ngram", False)])
def test_a_report_asks_for_the_algorithm(runs: Runs, name: str, has_draft: bool) -> None:
    """By SGLang's name for it, with the path of a draft where there is one."""
    run = runs[name].run
    words = shlex.split(command_line(run) or "")
    at = words.index("--speculative-algorithm")
    assert words[at + 1] == run.engine.flags["speculative_algorithm"]
    assert ("--speculative-draft-model-path" in words) is has_draft
