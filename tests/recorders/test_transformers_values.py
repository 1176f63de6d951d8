"""The numbers in a trace are those of plain forwards over the final text.

Only verified positions are compared: after a rejection the target read tokens that the text does not have.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from spectrace.format.projections import project

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.engine


def _near(found: Any, expected: Any) -> bool:
    """Equal up to single precision over a few layers."""
    return bool(np.allclose(found, expected, atol=2e-4, rtol=1e-4))


def _run(way: Any, recorded: Callable[..., Any], **options: Any) -> tuple[Any, Any]:
    """A trace and the final text [1, tokens]."""
    outputs: list[Any] = []
    trace = recorded(way.target, lambda: outputs.append(way.generate()), **options)
    return trace, outputs[0]


def _plain_logits(model: Any, ids: Any) -> Any:
    with torch.no_grad():
        return model(ids).logits[0].float()


def _processed(way: Any, ids: Any, logits: Any) -> Any:
    """The logits after the warpers that `SAMPLED` asks for, position by position."""
    warpers = transformers.LogitsProcessorList(
        [transformers.TemperatureLogitsWarper(0.9), transformers.TopKLogitsWarper(40)]
    )
    rows = [warpers(ids[:, : i + 1], logits[i : i + 1]) for i in range(len(logits))]
    return torch.cat(rows)


def _verified(step: Any) -> Iterator[int]:
    """Positions of the step at which the target read the final text only."""
    yield from range(min(step.num_accepted + 1, len(step.emitted_ids)))


@pytest.mark.parametrize("name", ["draft", "uag", "lookup", "early_exit", "draft_sampled"])
def test_target_values_are_those_of_one_forward_over_the_text(
    name: str, zoo: Any, recorded: Callable[..., Any]
) -> None:
    """Picks, log-probabilities, ranks, gaps and alternatives of the target at every verified position."""
    way = zoo.way(name)
    trace, ids = _run(way, recorded)
    logits = _plain_logits(way.target, ids)
    if way.is_sampled:
        logits = _processed(way, ids, logits)
    for step in trace:
        assert step.logits_kind == ("processed" if way.is_sampled else "raw")
        for j in _verified(step):
            row = logits[step.position + j - 1]
            logprobs = row.log_softmax(-1)
            best = row.topk(2)
            assert step.target_ids[j] == best.indices[0]
            assert _near(step.target_gaps[j], (best.values[0] - best.values[1]))
            for token, logprob in step.target_top[j]:
                assert _near(logprob, logprobs[token])
            if j < len(step.proposal_ids):
                token = step.proposal_ids[j]
                assert _near(step.target_logprobs[j], logprobs[token])
                assert step.target_ranks[j] == 1 + int((row > row[token]).sum())


def test_greedy_picks_are_what_was_committed(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Without sampling the target's picks at verified positions are the emitted tokens."""
    trace, _ = _run(zoo.way("draft"), recorded)
    for step in trace:
        assert step.target_ids[: len(step.emitted_ids)] == step.emitted_ids


def test_draft_values_are_those_of_a_forward_of_the_draft(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Log-probabilities, entropies and alternatives of the draft, at accepted and rejected positions."""
    way = zoo.way("draft")
    trace, ids = _run(way, recorded)
    for step in trace:
        if not step.proposal_ids:
            continue
        read = torch.cat((ids[:, : step.position], torch.tensor([step.proposal_ids])), dim=1)
        logprobs = _plain_logits(way.draft, read).log_softmax(-1)
        for j, token in enumerate(step.proposal_ids):
            row = logprobs[step.position + j - 1]
            assert step.draft_ids[j] == token
            assert _near(step.draft_logprobs[j], row[token])
            assert _near(step.draft_entropy[j], -(row.exp() * row).sum())
            assert step.draft_top[j][0][0] == token
            assert _near([p for _, p in step.draft_top[j]], row.topk(5).values)


def test_early_exit_drafts_with_the_first_layers(zoo: Any, recorded: Callable[..., Any]) -> None:
    """The draft's values are those of the target cut after its third layer, not of the whole target."""
    way = zoo.way("early_exit")
    trace, ids = _run(way, recorded)
    cut = copy.deepcopy(way.target)
    cut.config.num_hidden_layers = 3
    step = trace.steps[1]
    read = torch.cat((ids[:, : step.position], torch.tensor([step.proposal_ids])), dim=1)
    logprobs = _plain_logits(cut, read).log_softmax(-1)
    expected = [logprobs[step.position + j - 1][t] for j, t in enumerate(step.proposal_ids)]
    assert _near(step.draft_logprobs, expected)


def test_overlap_is_the_sum_of_the_smaller_probabilities(zoo: Any, recorded: Callable[..., Any]) -> None:
    """At the root of every step, the overlap of both models' plain distributions."""
    way = zoo.way("draft")
    trace, ids = _run(way, recorded)
    p, q = (_plain_logits(m, ids).softmax(-1) for m in (way.target, way.draft))
    for step in trace:
        if step.proposal_ids:
            at = step.position - 1
            assert _near(step.overlaps[0], torch.minimum(p[at], q[at]).sum())


def test_a_ruled_out_token_has_a_logprob_of_minus_infinity(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Top-k leaves three tokens: the fourth choice is impossible, and entropies stay finite."""
    way = zoo.way("draft")
    trace = recorded(way.target, lambda: way.generate(do_sample=True, top_k=3), top=4)
    step = trace.steps[1]
    assert all(top[2][1] > -np.inf and top[3][1] == -np.inf for top in step.target_top)
    assert all(top[2][1] > -np.inf and top[3][1] == -np.inf for top in step.draft_top)
    assert np.isfinite(step.draft_entropy).all()
    assert np.isfinite(step.overlaps).all()
    assert step.nonfinite == {"draft_logits": 0, "target_logits": 0}


@pytest.mark.parametrize("boundaries", [(0, 2), (1, 3, 4)])
def test_taps_are_the_residual_stream_of_a_plain_forward(
    boundaries: tuple[int, ...], zoo: Any, recorded: Callable[..., Any]
) -> None:
    """B(k) at the root of every step and at rows of the prompt, by RMS and projections."""
    way = zoo.way("draft")
    trace, ids = _run(way, recorded, taps=boundaries)
    states = _residual_stream(way.target, ids)
    assert trace.run.taps.boundaries == boundaries
    for step in trace:
        roots = {tap.boundary for tap in step.taps if tap.position == step.position - 1}
        assert roots == set(boundaries)
        for tap in step.taps:
            row = states[tap.boundary][tap.position].numpy()
            assert _near(tap.rms, np.sqrt((row**2).mean()))
            assert _near(tap.projections, project(row)[0])
            assert tap.shape[0] == 1
            assert tap.shape[2] == 32
            assert (tap.dtype, tap.nonfinite) == ("float32", 0)


def _residual_stream(model: Any, ids: Any) -> list[Any]:
    """B(0)..B(n) [tokens, hidden_size]; the last is caught before the final norm."""
    last: list[Any] = []
    handle = model.model.layers[-1].register_forward_hook(
        lambda _layer, _args, output: last.append(output if torch.is_tensor(output) else output[0])
    )
    with torch.no_grad():
        states = model(ids, output_hidden_states=True).hidden_states
    handle.remove()
    assert not torch.allclose(states[-1], last[0]), "the last state of transformers is normed"
    return [state[0] for state in (*states[:-1], last[0])]


def test_prompt_rows_are_few_and_evenly_spaced(zoo: Any, recorded: Callable[..., Any]) -> None:
    """A prefill keeps at most eight rows of a boundary, from the first token to the last."""
    way = zoo.way("draft")
    trace, _ = _run(way, recorded, taps=(2,))
    positions = [tap.position for tap in trace.steps[0].taps]
    assert positions[0] == 0
    assert positions[-1] == way.input_ids.shape[1] - 1
    assert len(positions) <= 8
    assert len(set(np.diff(positions[:-1]))) == 1


def test_early_exit_drafts_leave_no_taps(zoo: Any, recorded: Callable[..., Any]) -> None:
    """The target drafts for itself here, and its layers are looked at only while it verifies."""
    trace, ids = _run(zoo.way("early_exit"), recorded, taps=(2,))
    states = _residual_stream(zoo.target, ids)
    for step in list(trace)[1:]:
        assert [tap.position for tap in step.taps] == [step.position - 1]
        row = states[2][step.position - 1].numpy()
        assert _near(step.taps[0].projections, project(row)[0])


def test_cache_lengths_are_the_committed_length(way: Any, recorded: Callable[..., Any]) -> None:
    """A sound run's caches hold, when the last committed token was read, the committed tokens."""
    trace, _ = _run(way, recorded)
    for step in trace:
        assert step.target_kv_length == step.position
        if way.name in ("draft", "draft_sampled", "early_exit", "early_exit_sampled"):
            assert step.draft_kv_length == (step.position if step.proposal_ids else None)


def test_times_add_up(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Drafting and verifying make up a step, and steps follow each other on one clock."""
    trace, _ = _run(zoo.way("draft"), recorded)
    steps = list(trace)
    for step in steps:
        assert step.draft_ns > 0
        assert step.verify_ns > 0
        assert step.step_ns == step.draft_ns + step.verify_ns
    for before, after in pairwise(steps):
        assert before.started_ns + before.step_ns <= after.started_ns


def test_raw_ids_of_a_translated_draft_are_its_own(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Universal speculative decoding: raw id and mapped id are the same token in two vocabularies."""
    trace, _ = _run(zoo.way("usd"), recorded, tokenizer=zoo.tokenizer)
    raw = [i for step in trace for i in step.draft_ids]
    mapped = [i for step in trace for i in step.proposal_ids]
    assert raw != mapped
    assert zoo.other_tokenizer.convert_ids_to_tokens(raw) == zoo.tokenizer.convert_ids_to_tokens(mapped)
    assert trace.token_text(raw[0], draft=True) == trace.token_text(mapped[0])


def test_broken_weights_are_counted(zoo: Any, recorded: Callable[..., Any]) -> None:
    """NaN in one row of the target's head is one nonfinite logit per position; the run goes on."""
    way = zoo.way("draft")
    target = copy.deepcopy(way.target)
    with torch.no_grad():
        target.lm_head.weight[300] = torch.nan
    trace = recorded(
        target, lambda: target.generate(way.input_ids, assistant_model=zoo.draft, max_new_tokens=8)
    )
    for step in trace:
        assert step.nonfinite["target_logits"] == len(step.target_ids)
        assert step.nonfinite.get("draft_logits", 0) == 0


def test_raw_nonfinite_logits_are_told_from_ruled_out_tokens(zoo: Any, recorded: Callable[..., Any]) -> None:
    """With processors that write minus infinity, the count is that of the logits before them."""
    way = zoo.way("draft_sampled")
    target = copy.deepcopy(way.target)
    with torch.no_grad():
        target.lm_head.bias = torch.nn.Parameter(torch.zeros(320))
        target.lm_head.bias[300] = -torch.inf
    trace = recorded(
        target,
        lambda: target.generate(
            way.input_ids, assistant_model=zoo.draft, do_sample=True, top_k=5, max_new_tokens=8
        ),
    )
    for step in trace:
        assert step.nonfinite["target_logits"] == len(step.target_ids)


@pytest.mark.parametrize("mode", ["inference", "autocast"])
def test_values_do_not_depend_on_the_mode_of_torch(mode: str, zoo: Any, recorded: Callable[..., Any]) -> None:
    """In inference mode, and before and after it, and under autocast, the numbers are those of the run."""
    way = zoo.way("draft")

    def run() -> None:
        if mode == "autocast":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                way.generate()
            return
        way.generate()
        with torch.inference_mode():
            way.generate()
        way.generate()

    trace = recorded(way.target, run, taps=(2,))
    if mode == "inference":
        steps = [[s for s in trace if s.request == name] for name in ("r0", "r1", "r2")]
        assert steps[0]
        for plain, *others in zip(*steps, strict=True):
            for other in others:
                assert other.target_logprobs == plain.target_logprobs
                assert other.taps == plain.taps
        return
    for step in trace:
        assert step.target_ids[: len(step.emitted_ids)] == step.emitted_ids
        # Projections are made outside autocast, in single precision: their mean square is near the state's.
        assert all(np.isfinite(tap.projections).all() for tap in step.taps)


def test_half_precision_states_are_told_and_reduced_in_single(zoo: Any, recorded: Callable[..., Any]) -> None:
    """A bfloat16 target: dtype of header and taps say so, and the values are those of its own forward."""
    target = copy.deepcopy(zoo.target).to(torch.bfloat16)
    way = zoo.way("lookup")
    outputs: list[Any] = []

    def run() -> None:
        options = {"prompt_lookup_num_tokens": 3, "max_new_tokens": 8, "do_sample": False}
        outputs.append(target.generate(way.input_ids, **options))

    trace = recorded(target, run, taps=(4,))
    assert trace.run.target.dtype == "bfloat16"
    state = _residual_stream(target, outputs[0])[4]
    last = way.input_ids.shape[1] - 1
    tap = trace.steps[0].taps[-1]
    assert (tap.position, tap.dtype) == (last, "bfloat16")
    row = state[last].float().numpy()
    assert np.allclose(tap.projections, project(row)[0], atol=0.05 * np.abs(row).max())


def test_cached_prompts_are_told(zoo: Any, recorded: Callable[..., Any]) -> None:
    """A call that goes on from a cache says in its first step how long that was."""
    way = zoo.way("lookup")
    with torch.no_grad():
        cache = transformers.DynamicCache(config=zoo.target.config)
        parameters = inspect.signature(zoo.target.forward).parameters
        key = "cache" if "cache" in parameters else "past_key_values"
        zoo.target(way.input_ids[:, :10], **{key: cache})
    trace = recorded(zoo.target, lambda: way.generate(**{key: cache}))
    assert [step.prefix_hit_length for step in trace][:2] == [10, None]
