"""Header facts: what vLLM's configs and the loaded models say about a run, in the names of a trace.

Feature detection only: a fact that an engine version does not offer is left out. Hooks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spectrace_serving.checkpoint import find_checkpoint
from spectrace_serving.facts import Facts
from spectrace_serving.header import LOOKUP, PART_OF_TARGET, flags, out_of_reach, run_header, without_model
from spectrace_transformers.token_text import Vocabulary
from spectrace_vllm.draft_facts import draft_facts, map_facts, model_facts, tap_facts
from spectrace_vllm.engine import Engine
from spectrace_vllm.hooks import engine_version

_OUT_OF_REACH = out_of_reach(
    "vLLM", "the draft's distribution is gone when the target's is computed, one engine step later"
)


def run_facts(
    engine: Engine, vocabulary: Vocabulary | None, problems: Mapping[str, str], is_full: bool
) -> Facts:
    """The header as far as it is known before the first request.

    Args:
        engine: what runs.
        vocabulary: the target's tokens, where texts are captured.
        problems: fields that will be missing, and why.
        is_full: probabilities and states too, not only ids.
    """
    config, spec = engine.config, engine.speculative
    checkpoint = None
    draft_model = getattr(spec, "draft_model_config", None)
    if engine.draft is not None and draft_model is not None:
        checkpoint = find_checkpoint(draft_model.model, getattr(draft_model, "revision", None))
    own = {
        "engine": {
            "name": "vllm",
            "version": engine_version(),
            "runner": engine.kind,
            "flags": flags(_settings(engine), engine.draft_config),
        },
        "method": engine.method if spec is not None else None,
        "target": model_facts(config.model_config),
        "draft": draft_facts(engine, checkpoint),
        "vocab_map": map_facts(engine, checkpoint),
        "taps": tap_facts(engine, checkpoint),
        "verification": _verification(spec),
        "speculation": {"num_draft_tokens": getattr(spec, "num_speculative_tokens", None)},
    }
    return run_header(
        "vllm",
        own,
        vocabulary=vocabulary,
        target_config=config.model_config.hf_config,
        draft_config=engine.draft_config,
        is_eager=engine.is_eager,
        is_full=is_full,
        unavailable={**_OUT_OF_REACH, **_by_method(engine), **problems},
    )


def _settings(engine: Engine) -> Facts:
    """Launch settings that bear on speculation."""
    config, spec = engine.config, engine.speculative
    scheduler = config.scheduler_config
    return {
        "method": getattr(spec, "method", None),
        "draft_sample_method": getattr(spec, "draft_sample_method", None),
        "rejection_sample_method": getattr(spec, "rejection_sample_method", None),
        "disable_padded_drafter_batch": getattr(spec, "disable_padded_drafter_batch", None),
        "prompt_lookup_max": getattr(spec, "prompt_lookup_max", None),
        "prompt_lookup_min": getattr(spec, "prompt_lookup_min", None),
        **_settings_of_method(engine),
        "enforce_eager": config.model_config.enforce_eager,
        "async_scheduling": getattr(scheduler, "async_scheduling", None),
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "enable_prefix_caching": config.cache_config.enable_prefix_caching,
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
        "pipeline_parallel_size": config.parallel_config.pipeline_parallel_size,
    }


def _settings_of_method(engine: Engine) -> Facts:
    """Those that one way of drafting or accepting alone has."""
    # A length that was asked for vLLM turns into rates itself.
    spec, names = engine.speculative, ["dspark_draft_topk", "synthetic_acceptance_rates"]
    if engine.method == "suffix":
        known = ("max_tree_depth", "max_cached_requests", "max_spec_factor", "min_token_prob")
        names += [f"suffix_decoding_{name}" for name in known]
    if engine.block is None:  # which sets it by itself
        names.append("parallel_drafting")
    return {name: getattr(spec, name, None) for name in names}


def _verification(spec: Any) -> Facts:
    """The rule, where the engine's settings alone decide it."""
    method = str(getattr(spec, "rejection_sample_method", "standard"))
    if method == "synthetic":
        rates = getattr(spec, "synthetic_acceptance_rates", None)
        return {"rule": "synthetic", "lossless": False, "rates": None if rates is None else list(rates)}
    if method == "block":
        return {"rule": "block", "lossless": True}
    return {} if method == "standard" else {"rule": "other", "lossless": False, "method": method}


def request_rule(engine: Engine, is_greedy: bool) -> Facts:
    """The acceptance rule for a request, where settings leave it to the temperature.

    Without draft probabilities vLLM takes q for 1 at the draft's token: accepted iff p >= u.
    Source: vLLM 0.32.0 v1/sample/rejection_sampler.py, ``rejection_random_sample_kernel``.
    """
    rule = "target_only" if engine.is_draft_greedy else "rejection_sampling"
    return {"rule": "greedy" if is_greedy else rule, "lossless": True}


def _by_method(engine: Engine) -> Facts:
    """What a way of drafting cannot give, and why."""
    if engine.speculative is None:
        return {}
    if engine.draft is None:
        is_lookup = engine.method in ("ngram", "suffix")
        return LOOKUP if is_lookup else without_model("the proposer gives tokens only")
    if engine.method == "mtp":
        return PART_OF_TARGET
    if engine.method == "medusa":
        reason = "every head reads the same state of the target"
        return dict.fromkeys(("draft_positions", "draft_inputs"), reason)
    if engine.block is not None:
        return {"draft_inputs": "one forward drafts all tokens"}
    if getattr(engine.speculative, "parallel_drafting", False):
        reason = "one forward drafts all tokens, all but the first from masks"
        return dict.fromkeys(("draft_positions", "draft_inputs"), reason)
    return {}
