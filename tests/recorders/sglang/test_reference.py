"""The reference decoder beside SGLang: one EAGLE-3 pair, two engines, the same chains and the same trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import spectrace
from tests.recorders.serving_runs import Runs
from tests.recorders.sglang.invariants import parents_of

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module", params=["chain", "tree"])
def pair(
    request: pytest.FixtureRequest, models: Path, runs: Runs, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Any, Any]]:
    """Steps of the reference decoder and of SGLang that begin at the same place of the same text."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    from spectrace_eagle3 import Chain, DynamicTree, Eagle3Decoder, Eagle3Recorder, load_draft

    plan = Chain(3) if request.param == "chain" else DynamicTree(topk=2, depth=3, num_nodes=7)
    target = AutoModelForCausalLM.from_pretrained(models / "target", dtype=torch.float32)
    path = tmp_path_factory.mktemp("reference") / "run.spectrace"
    outcome = runs[request.param]
    with spectrace.open(outcome.trace) as trace:
        prompts = {one.request: one.prompt_ids for one in trace.requests}
    with (
        Eagle3Decoder(target, load_draft(models / "eagle3", target), plan=plan) as decoder,
        Eagle3Recorder(path, decoder) as recorder,
    ):
        for name in outcome.steps:
            # Longer than SGLang was asked for: this decoder proposes no more than may still be committed.
            recorder.generate(list(prompts[name] or ()), 40)
    with spectrace.open(path) as trace:
        found = {(step.request, step.position): step for step in trace}
    return [
        (found[f"r{at}", other.position], other)
        for at, steps in enumerate(outcome.steps.values())
        for other in steps
        if (f"r{at}", other.position) in found
    ]


def paths(step: Any) -> dict[tuple[int, ...], int]:
    """Nodes by the tokens from the root down to them: engines number the nodes of a tree differently."""
    found: list[tuple[int, ...]] = []
    for node, parent in enumerate(parents_of(step)):
        above = found[parent] if parent >= 0 else ()
        found.append((*above, step.proposal_ids[node]))
    return {path: node for node, path in enumerate(found)}


def strangers_in(step: Any) -> set[int]:
    """Nodes before which SGLang's draft has read another branch than their own.

    The draft's cache is kept by row, and the rows of a depth are its best tokens, best first. Where a branch
    goes on in another row than before, that row's cache still holds the branch that it came from.
    """
    parents = parents_of(step)
    scores: list[float] = []
    depths: list[int] = []
    for node, parent in enumerate(parents):
        scores.append((scores[parent] if parent >= 0 else 0.0) + step.draft_logprobs[node])
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    row: dict[int, int] = {}
    for depth in set(depths):
        best = sorted(
            (node for node in range(len(parents)) if depths[node] == depth), key=lambda n: -scores[n]
        )
        row |= {node: at for at, node in enumerate(best)}
    above = {node: parents[parent] if parent >= 0 else -1 for node, parent in enumerate(parents)}
    return {node for node in above if above[node] >= 0 and row[parents[node]] != row[above[node]]}


def test_sglang_does_what_the_reference_decoder_does(pair: list[tuple[Any, Any]]) -> None:
    """The same nodes with the same raw ids and certainty, and the same picks after each: the same tokens."""
    assert len(pair) >= 8
    compared = 0
    for one, other in pair:
        expected, nodes, strangers = paths(one), paths(other), strangers_in(other)
        if not strangers:
            assert set(expected) == set(nodes)
            length = min(len(one.emitted_ids), len(other.emitted_ids))
            assert one.emitted_ids[:length] == other.emitted_ids[:length]
        for path in set(expected) & set(nodes):
            node, twin = nodes[path], expected[path]
            assert one.draft_ids[twin] == other.draft_ids[node]
            assert one.target_ids[twin + 1] == other.target_ids[node + 1]
            assert one.draft_positions[twin] == other.draft_positions[node]
            assert one.target_logprobs[twin] == pytest.approx(other.target_logprobs[node], abs=2e-3)
            if node not in strangers:
                for field in ("draft_logprobs", "draft_entropy"):
                    assert getattr(one, field)[twin] == pytest.approx(getattr(other, field)[node], abs=2e-3)
                    compared += 1
    assert compared >= 50


def test_the_states_are_those_that_the_reference_decoder_taps(pair: list[tuple[Any, Any]]) -> None:
    """What SGLang feeds its draft at a position is what the reference decoder taps there."""
    rows = {(tap.boundary, tap.position, one.emitted_ids): tap for one, _ in pair for tap in one.taps}
    compared = 0
    for one, other in pair:
        for tap in other.taps:
            twin = rows.get((tap.boundary, tap.position, one.emitted_ids))
            if twin is not None:
                assert tap.projections == pytest.approx(twin.projections, abs=2e-2)
                compared += 1
    assert compared > 40


def test_what_the_draft_reads_is_the_same(pair: list[tuple[Any, Any]]) -> None:
    """RMS of the fused states at depth 0, and of what is fed back at each depth after it."""
    for one, other in pair:
        if other.proposal_ids:
            expected = [entry["rms"] for entry in one.draft_inputs]
            assert [entry["rms"] for entry in other.draft_inputs] == pytest.approx(expected, rel=2e-3)
