"""The trace tells what the decoder did; its numbers are those of plain forwards over the final text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spectrace
import spectrace_demo
from spectrace.errors import UsageError
from spectrace.format.projections import project

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace_eagle3 import Chain, Eagle3Decoder, Eagle3Recorder, Sampler, load_draft  # noqa: E402
from tests.recorders.eagle3_zoo import (  # noqa: E402
    EOS,
    PLANS,
    bundled_target,
    bundled_tokenizer,
    prompt_ids,
)

pytestmark = pytest.mark.engine

NEW_TOKENS = 24
TOLERANCE: dict[str, Any] = {"atol": 2e-3, "rtol": 1e-3}


class Recorded:
    """A trace of two prompts, and what was generated."""

    def __init__(self, path: Path, name: str) -> None:
        plan = PLANS[name.removesuffix("_sampled")]
        self.sampler = Sampler(0.9, top_k=40, seed=5) if name.endswith("_sampled") else Sampler()
        draft = load_draft(spectrace_demo.eagle3_path(), bundled_target())
        self.prompts = [prompt_ids(0), prompt_ids(5)]
        with (
            Eagle3Decoder(bundled_target(), draft, plan, sampler=self.sampler, eos_ids=[EOS]) as decoder,
            Eagle3Recorder(path, decoder, tokenizer=bundled_tokenizer(), strict=True) as recorder,
        ):
            self.outputs = [
                recorder.generate(ids, NEW_TOKENS, reference=number == 0)
                for number, ids in enumerate(self.prompts)
            ]
        self.table = draft.vocab.table.tolist()
        self.trace: Any = spectrace.open(path)
        self.is_chain = isinstance(plan, Chain)
        self.depth = plan.depth

    def steps(self, request: int) -> list[Any]:
        """Steps of one prompt."""
        return [step for step in self.trace if step.request == f"r{request}"]

    def text(self, request: int) -> list[int]:
        """Prompt and everything generated."""
        return [*self.prompts[request], *self.outputs[request]]

    def logits(self, request: int) -> Any:
        """The target's, processed, one row for each token of the text."""
        with torch.no_grad():
            logits = bundled_target()(torch.tensor([self.text(request)])).logits[0].float()
        return self.sampler.processed(logits)


NAMES = ("chain", "chain_sampled", "dynamic", "dynamic_sampled", "static")


@pytest.fixture(scope="module", params=NAMES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Return each kind of run in turn."""
    torch.set_num_threads(1)
    return Recorded(tmp_path_factory.mktemp("eagle3") / "run.spectrace", request.param)


def _verified(step: Any) -> Iterator[tuple[int, int]]:
    """(row of the target, index in the text of the token before it) where the target read the final text."""
    nodes = range(step.num_accepted) if step.parents is None else step.accepted_nodes
    rows = [0, *(node + 1 for node in nodes)]
    for depth, row in enumerate(rows[: len(step.emitted_ids)]):
        yield row, step.position - 1 + depth


def test_steps_join_to_the_generated_text(recorded: Recorded) -> None:
    """Numbers, positions and tokens follow each other without a gap; the first step is the prompt's."""
    for number, output in enumerate(recorded.outputs):
        steps = recorded.steps(number)
        assert [token for step in steps for token in step.emitted_ids] == output
        assert [step.step for step in steps] == list(range(len(steps)))
        at = len(recorded.prompts[number])
        for step in steps:
            assert step.position == at
            at += len(step.emitted_ids)
        assert [step.flags for step in steps if step.flags and "prefill" in step.flags] == [("prefill",)]
        assert steps[0].proposal_ids == ()
        assert [step.stop for step in steps[:-1]] == [None] * (len(steps) - 1)
        assert steps[-1].stop in ("length", "eos")
    assert recorded.trace.problems == []


def test_accepted_counts_follow_from_the_ids(recorded: Recorded) -> None:
    """The accepted path leads down from the root and spells what was emitted; the target's token ends it."""
    assert 0 < recorded.trace.counts.accepted < recorded.trace.counts.drafted
    for step in recorded.trace:
        n, ids = step.num_accepted, step.proposal_ids
        if not ids:
            assert (n, step.final_kind) == (0, "none")
            continue
        parents = range(-1, len(ids) - 1) if step.parents is None else step.parents
        path = range(n) if step.parents is None else step.accepted_nodes
        assert (step.parents is None) == recorded.is_chain
        assert len(path) == n
        assert [parents[node] for node in path] == [-1, *path][:n]
        assert list(step.emitted_ids[:n]) == [ids[node] for node in path]
        at = path[-1] if n else -1
        children = [ids[node] for node, parent in enumerate(parents) if parent == at]
        if step.final_kind == "draft":
            assert len(step.emitted_ids) == n
            assert step.stop is not None
            assert "truncated" in step.flags
            continue
        assert step.num_accepted_reported == n
        assert len(step.emitted_ids) == n + 1
        if not children:
            assert step.final_kind == "bonus"
        else:
            assert step.emitted_ids[n] not in children
            assert step.final_kind == ("corrected" if recorded.sampler.is_greedy else "recovered")


def test_target_values_are_those_of_one_forward_over_the_text(recorded: Recorded) -> None:
    """Picks, gaps, alternatives at every verified row; log-probability and rank of what was proposed."""
    for number in range(2):
        logits = recorded.logits(number)
        logp = logits.log_softmax(-1)
        for step in recorded.steps(number):
            parents = range(-1, len(step.proposal_ids) - 1) if step.parents is None else step.parents
            for row, at in _verified(step):
                first, second = logits[at].topk(2).values.tolist()
                assert step.target_gaps[row] == pytest.approx(first - second, abs=5e-3)
                if first - second > 5e-3:
                    assert step.target_ids[row] == int(logits[at].argmax())
                for token, logprob in step.target_top[row]:
                    expected = float(logp[at, token])
                    assert logprob == pytest.approx(expected, abs=5e-3) or logprob == expected
                for node in (node for node, parent in enumerate(parents) if parent == row - 1):
                    chosen = logits[at, step.proposal_ids[node]]
                    if not chosen.isfinite():
                        assert step.target_logprobs[node] == float("-inf")
                        continue
                    assert step.target_logprobs[node] == pytest.approx(
                        float(logp[at, step.proposal_ids[node]]), abs=5e-3
                    )
                    fewest = int((logits[at] > chosen + 5e-3).sum()) + 1
                    most = int((logits[at] > chosen - 5e-3).sum()) + 1
                    assert fewest <= step.target_ranks[node] <= most


def test_raw_ids_map_to_proposed_ids_by_offset(recorded: Recorded) -> None:
    """Every proposed id is its raw id plus the offset that the header holds."""
    found = recorded.trace.run.vocab_map
    assert found is not None
    assert found.d2t is not None
    assert (found.applied, found.source) == ("offset", "checkpoint")
    assert [i + offset for i, offset in enumerate(found.d2t)] == recorded.table == list(found.t2d or ())
    for step in recorded.trace:
        if step.proposal_ids:
            assert [recorded.table[raw] for raw in step.draft_ids] == list(step.proposal_ids)


def test_what_the_draft_thought_adds_up(recorded: Recorded) -> None:
    """Log q of the proposed token is among its alternatives, entropy and overlap are within their bounds."""
    for step in recorded.trace:
        for node, raw in enumerate(step.draft_ids or ()):
            top = dict(step.draft_top[node])
            if raw in top:
                assert step.draft_logprobs[node] == pytest.approx(top[raw], abs=1e-5)
            assert step.draft_logprobs[node] <= step.draft_top[node][0][1] + 1e-6
            assert 0 <= step.draft_entropy[node] <= np.log(len(recorded.table)) + 1e-4
            assert -1e-6 <= step.overlaps[node] <= 1 + 1e-4


def test_positions_and_cache_lengths_are_those_of_the_convention(recorded: Recorded) -> None:
    """The draft reads the last committed token one before its index and goes on by one per depth."""
    for step in recorded.trace:
        if not step.proposal_ids:
            continue
        parents = range(-1, len(step.proposal_ids) - 1) if step.parents is None else step.parents
        depths: list[int] = []
        for parent in parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        assert list(step.draft_positions) == [step.position - 2 + depth for depth in depths]
        assert step.draft_kv_length == step.position - 1
        assert step.target_kv_length == step.position
        assert len(step.draft_inputs) <= recorded.depth
        assert len(step.draft_inputs) > max(depths)
        assert all(entry["rms"] > 0 for entry in step.draft_inputs)
        # The token beside each state; of a tree only the first.
        read = [entry.get("token_position") for entry in step.draft_inputs]
        following = range(1, len(read)) if step.parents is None else []
        assert read[0] == step.position - 1
        assert [at for at in read[1:] if at is not None] == [step.position - 1 + depth for depth in following]


def test_taps_are_the_states_of_a_plain_forward(recorded: Recorded) -> None:
    """Shape, RMS and projections of every row, prompt and decoding alike."""
    for number in range(2):
        with torch.no_grad():
            states = bundled_target()(
                torch.tensor([recorded.text(number)]), output_hidden_states=True
            ).hidden_states
        for step in recorded.steps(number):
            assert {tap.boundary for tap in step.taps} == {2, 4, 5}
            for tap in step.taps:
                row = states[tap.boundary][0, tap.position].numpy()
                assert tap.shape[-1] == 192
                assert (tap.dtype, tap.nonfinite) == ("float32", 0)
                assert tap.rms == pytest.approx(float(np.sqrt((row**2).mean())), rel=1e-3)
                np.testing.assert_allclose(tap.projections, project(row)[0], **TOLERANCE)
            if step.step:
                positions = {tap.position for tap in step.taps}
                # Where the end cut a step short, the target has read more than was committed.
                is_cut = "truncated" in (step.flags or ())
                assert len(positions) > step.num_accepted
                assert is_cut or len(positions) == step.num_accepted + 1
                assert min(positions) == step.position - 1


def test_the_reference_holds_every_boundary_of_the_first_text(recorded: Recorded) -> None:
    """Its rows equal the taps of the same tokens, in the prompt and behind it."""
    rows = {reference.boundary: reference.rows for reference in recorded.trace.references}
    assert sorted(rows) == list(range(9))
    seen = {(tap.boundary, tap.position): tap for step in recorded.steps(0) for tap in step.taps}
    places = [row.position for row in rows[0]]
    assert any(position >= len(recorded.prompts[0]) for position in places)
    for boundary in (2, 4, 5):
        assert [row.position for row in rows[boundary]] == places
        for row in rows[boundary]:
            tap = seen[boundary, row.position]
            np.testing.assert_allclose(tap.projections, row.projections, **TOLERANCE)


def test_the_header_says_what_ran(recorded: Recorded) -> None:
    """Method, rule, shape of the proposals, taps, weights and rotary settings."""
    run = recorded.trace.run
    assert (run.method, run.engine.name) == ("eagle3", "spectrace_eagle3")
    assert run.taps is not None
    assert tuple(run.taps.boundaries or ()) == tuple(run.taps.declared or ()) == (2, 4, 5)
    assert (run.taps.numbering, run.taps.origin, run.taps.normed) == ("input", "config", False)
    assert run.draft is not None
    assert run.draft.parameters is not None
    assert list(run.draft.parameters.missing or ()) == list(run.draft.parameters.unexpected or ()) == []
    assert (run.draft.vocab_size, run.draft.head_rows) == (560, 560)
    assert run.draft.rope == {"rope_theta": 10000.0, "rope_type": "default"}
    assert run.draft.rope_declared == {"rope_theta": 10000.0}
    assert run.draft.fingerprints["lm_head.weight"].shape == (560, 192)
    assert run.verification is not None
    assert run.speculation is not None
    rules = {(True, True): "greedy", (True, False): "greedy", (False, True): "rejection_sampling"}
    rule = rules.get((recorded.sampler.is_greedy, recorded.is_chain), "target_only")
    assert (run.verification.rule, run.verification.lossless) == (rule, True)
    assert (run.speculation.tree is None) == recorded.is_chain
    assert (run.training or {})["first_position_accuracy"] > 0.6


def test_token_texts_are_in_the_trace(recorded: Recorded) -> None:
    """A raw id reads like the target id that it stands for."""
    step = next(step for step in recorded.trace if step.proposal_ids)
    for raw, mapped in zip(step.draft_ids or (), step.proposal_ids, strict=True):
        assert raw is not None
        text = recorded.trace.token_text(mapped)
        assert text == recorded.trace.token_text(raw, draft=True)
        assert text is not None


def test_without_text_no_prompt_and_no_token_is_kept(tmp_path: Path) -> None:
    """Prompts stay a digest; ids of what is generated stay."""
    draft = load_draft(spectrace_demo.eagle3_path(), bundled_target())
    path = tmp_path / "run.spectrace"
    with (
        Eagle3Decoder(bundled_target(), draft, Chain(2)) as decoder,
        Eagle3Recorder(path, decoder, tokenizer=bundled_tokenizer(), text=False, strict=True) as recorder,
    ):
        output = recorder.generate(prompt_ids(0), 6)
    with spectrace.open(path) as trace:
        assert trace.requests[0].prompt_ids is None
        assert trace.requests[0].prompt_digest is not None
        assert trace.token_text(output[0]) is None
        assert [token for step in trace for token in step.emitted_ids] == output


def test_one_alternative_is_refused(tmp_path: Path) -> None:
    """A gap needs two choices; nothing is written."""
    draft = load_draft(spectrace_demo.eagle3_path(), bundled_target())
    with Eagle3Decoder(bundled_target(), draft) as decoder, pytest.raises(UsageError, match="at least 2"):
        Eagle3Recorder(tmp_path / "run.spectrace", decoder, top=1)
    assert list(tmp_path.iterdir()) == []
