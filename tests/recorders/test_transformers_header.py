"""The header tells what ran, in the words of a trace."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spectrace
from spectrace.format.jsonl import export_lines

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.engine

EXPECTED: dict[str, tuple[str, str, set[str]]] = {
    "draft": ("draft_model", "greedy", set()),
    "draft_sampled": ("draft_model", "rejection_sampling", set()),
    "uag": ("draft_model", "greedy", {"draft_ids", "draft_logprobs", "draft_top", "overlaps"}),
    "usd": ("draft_model", "rejection_sampling", set()),
    "lookup": ("ngram", "greedy", {"draft_logprobs", "draft_top", "overlaps"}),
    "lookup_sampled": ("ngram", "match", {"draft_logprobs", "draft_top", "overlaps"}),
    "early_exit": ("early_exit", "greedy", set()),
    "early_exit_sampled": ("early_exit", "rejection_sampling", set()),
}


def test_method_rule_and_what_is_missing_are_told(way: Any, recorded: Callable[..., Any]) -> None:
    """Method and verification rule of each way, and a reason for each field that it cannot give."""
    trace = recorded(way.target, way.generate)
    method, rule, missing = EXPECTED[way.name]
    run = trace.run
    assert (run.method, run.verification.rule, run.verification.lossless) == (method, rule, True)
    assert missing <= set(run.capture.unavailable)
    for step in trace:
        for name in missing:
            assert getattr(step, name) is None
    if not missing:
        assert all(s.draft_logprobs is not None for s in trace if s.proposal_ids)


def test_models_are_described(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Sizes, dtype and head of target and draft; a draft with the target's ids has an identity map."""
    run = recorded(zoo.target, zoo.way("draft").generate).run
    for model, layers in ((run.target, 4), (run.draft, 4)):
        assert (model.vocab_size, model.num_layers, model.hidden_size) == (320, layers, 32)
        assert (model.dtype, model.max_length, model.quantization) == ("float32", 256, None)
    assert run.draft.head_rows == 320
    assert run.draft.rope["rope_theta"] == 10000.0
    assert run.vocab_map.applied == "identity"
    assert run.engine.name == "transformers"
    assert run.engine.version == transformers.__version__
    assert run.recorder.name == "spectrace_transformers"


def test_an_early_exit_draft_has_the_layers_it_runs(zoo: Any, recorded: Callable[..., Any]) -> None:
    """The draft is the target up to the exit."""
    run = recorded(zoo.target, zoo.way("early_exit").generate).run
    assert (run.target.num_layers, run.draft.num_layers) == (4, 3)


def test_a_pruned_draft_has_the_rows_of_its_head(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Universal speculative decoding cuts the draft's head to the tokens both vocabularies share."""
    way = zoo.way("usd")
    run = recorded(way.target, way.generate).run
    shared = set(zoo.tokenizer.get_vocab()) & set(zoo.other_tokenizer.get_vocab())
    assert run.draft.head_rows == len(shared)
    assert run.vocab_map.applied is None


def test_sampling_and_speculation_are_described(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Temperature, warpers and the number of draft tokens; greedy is temperature 0."""
    run = recorded(zoo.target, zoo.way("draft_sampled").generate).run
    assert (run.sampling.temperature, run.sampling.top_k) == (0.9, 40)
    assert run.sampling.processors == ("TemperatureLogitsWarper", "TopKLogitsWarper")
    assert run.speculation.num_draft_tokens == 4
    run = recorded(zoo.target, zoo.way("lookup").generate).run
    assert (run.sampling.temperature, run.sampling.processors) == (0.0, ())
    assert run.speculation.num_draft_tokens == 3


def test_a_relaxed_rule_is_not_lossless(zoo: Any, recorded: Callable[..., Any]) -> None:
    """An ensemble weight, where transformers has it, is in the header with the rule it relaxes."""
    if not hasattr(transformers.GenerationConfig(), "assistant_ensemble_weight"):
        pytest.skip("this transformers has no assistant_ensemble_weight")
    way = zoo.way("draft")
    trace = recorded(zoo.target, lambda: way.generate(assistant_ensemble_weight=0.5))
    assert trace.run.verification.lossless is False
    assert trace.run_mapping["verification"]["assistant_ensemble_weight"] == 0.5
    for step in trace:
        assert step.emitted_ids[: step.num_accepted] == step.proposal_ids[: step.num_accepted]


def test_calls_that_differ_are_noted_once(
    zoo: Any, recorded: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """One header cannot describe two settings: it keeps the first, and says from where it is wrong."""
    ways = [zoo.way("draft"), zoo.way("draft_sampled"), zoo.way("lookup")]
    run = recorded(zoo.target, lambda: [way.generate() for way in ways]).run
    assert run.verification.rule == "greedy"
    assert "from r1 on" in run.capture.unavailable["verification"]
    assert "from r2 on" in run.capture.unavailable["method"]
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING and r.name == "spectrace"]
    assert len(warnings) == 2


def test_facts_of_the_caller_win(zoo: Any, recorded: Callable[..., Any]) -> None:
    """What is given as `run` stands beside and over what the recorder finds."""
    given = {"baseline": {"token_ns": 5}, "sampling": {"seed": 7}, "target": {"id": "named"}}
    run = recorded(zoo.target, zoo.way("draft").generate, run=given).run
    assert run.baseline == {"token_ns": 5}
    assert (run.sampling.seed, run.sampling.temperature) == (7, 0.0)
    assert (run.target.id, run.target.vocab_size) == ("named", 320)


def test_text_is_captured_with_a_tokenizer(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Prompt ids, their digest, and the texts of every id that occurs."""
    way = zoo.way("draft")
    trace = recorded(zoo.target, lambda: way.generate(eos_token_id=1), tokenizer=zoo.tokenizer)
    prompt = way.input_ids[0].tolist()
    request = trace.requests[0]
    assert list(request.prompt_ids) == prompt
    digest = hashlib.sha256(np.array(prompt, "<i4").tobytes()).hexdigest()
    assert request.prompt_digest == f"sha256:{digest}"
    for step in trace:
        for token in (*step.emitted_ids, *step.proposal_ids, *(t for t, _ in step.target_top[0])):
            expected = zoo.tokenizer.decode([token])
            assert "\ufffd" in expected or trace.token_text(token) == expected
        for token in step.draft_ids:
            assert trace.token_text(token, draft=True) == trace.token_text(token)
    assert trace.run.tokenizer.vocab_size == len(zoo.tokenizer)
    assert trace.run.tokenizer.digest.startswith("sha256:")
    assert trace.run.tokenizer.eos_ids == (1,)


def test_without_text_neither_prompt_nor_token_texts_are_kept(
    zoo: Any, recorded: Callable[..., Any], tmp_path: Path
) -> None:
    """The prompt is known by its digest only."""
    trace = recorded(zoo.target, zoo.way("draft").generate, tokenizer=zoo.tokenizer, text=False)
    assert trace.run.capture.text is False
    assert trace.requests[0].prompt_ids is None
    assert trace.requests[0].prompt_digest is not None
    assert all(trace.token_text(token) is None for step in trace for token in step.emitted_ids)


def test_both_tokenizers_are_taken_from_the_call(zoo: Any, recorded: Callable[..., Any]) -> None:
    """`generate` with two tokenizers is enough to have both texts of every token."""
    trace = recorded(zoo.target, zoo.way("usd").generate)
    step = next(step for step in trace if step.draft_ids and step.draft_ids != step.proposal_ids)
    for raw, mapped in zip(step.draft_ids, step.proposal_ids, strict=True):
        assert trace.token_text(raw, draft=True) == trace.token_text(mapped)


def test_taps_can_be_switched_off(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Without boundaries no layer is hooked and no step has taps."""
    trace = recorded(zoo.target, zoo.way("draft").generate, taps=())
    assert trace.run.taps is None
    assert all(step.taps is None for step in trace)


def test_default_taps_are_those_of_eagle3(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Layers 2, n // 2 and n - 3 as far as there are such: of four layers 1 and 2."""
    assert recorded(zoo.target, zoo.way("draft").generate).run.taps.boundaries == (1, 2)


def test_a_flight_recorder_keeps_the_newest_steps(
    zoo: Any, tmp_path: Path, recorded: Callable[..., Any]
) -> None:
    """With a byte budget the last call is there in full and the file stays within it."""
    way = zoo.way("draft")

    def run() -> None:
        for _ in range(4):
            way.generate()

    budget = 60_000
    trace = recorded(zoo.target, run, max_bytes=budget)
    paths = list(trace.paths)
    assert sum(Path(p).stat().st_size for p in paths) <= budget
    assert 0 < len(trace.steps) < 4 * 16
    assert sum(len(s.emitted_ids) for s in trace if s.request == "r3") == 32


@pytest.mark.parametrize("name", ["draft_sampled", "usd"])
def test_a_recorded_trace_can_be_exported(
    name: str, zoo: Any, recorded: Callable[..., Any], tmp_path: Path
) -> None:
    """Impossible tokens and all, every step becomes a line of JSON."""
    trace = recorded(zoo.target, zoo.way(name).generate, tokenizer=zoo.tokenizer)
    lines = list(export_lines(trace))
    assert sum('"record":"step"' in line for line in lines) == len(trace.steps)
    assert isinstance(trace, spectrace.Trace)
