"""Header facts: what SGLang's settings and the loaded models say about a run, in the names of a trace.

What a checkpoint declares stands beside what really runs; nothing is concluded from the difference. Feature
detection only: a fact that a version does not offer is left out. Hooks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spectrace.checkpoint.records import Checkpoint
from spectrace_serving import facts as shared
from spectrace_serving.checkpoint import find_checkpoint, has_map, kept_ids
from spectrace_serving.facts import LAYER_IDS, Facts, declared_layers, num_rows
from spectrace_serving.header import LOOKUP, PART_OF_TARGET, flags, out_of_reach, run_header
from spectrace_sglang.engine import Engine
from spectrace_sglang.hooks import engine_version
from spectrace_transformers.facts import model_id
from spectrace_transformers.token_text import Vocabulary

_SETTINGS = (
    "speculative_algorithm", "speculative_eagle_topk", "speculative_num_steps",
    "speculative_num_draft_tokens", "speculative_token_map", "speculative_attention_mode",
    "speculative_accept_threshold_single", "speculative_accept_threshold_acc",
    "speculative_use_rejection_sampling", "speculative_use_block_verification", "attention_backend",
    "disable_overlap_schedule", "disable_radix_cache", "chunked_prefill_size", "max_running_requests",
    "tp_size", "pp_size", "dp_size",
)  # fmt: skip
"""That bear on speculation."""
_LOOKUP = (
    "speculative_ngram_max_trie_depth", "speculative_ngram_min_bfs_breadth",
    "speculative_ngram_max_bfs_breadth", "speculative_ngram_match_type",
)  # fmt: skip
_OUT_OF_REACH = out_of_reach("SGLang", "both distributions at every node are not compared while serving")


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
    checkpoint = None
    if engine.draft is not None and engine.draft_config is not None:
        checkpoint = find_checkpoint(
            str(engine.draft_config.model_path), getattr(engine.draft_config, "revision", None)
        )
    draft_config = getattr(engine.draft_config, "hf_config", None)
    names = (*_SETTINGS, *_LOOKUP) if engine.method == "ngram" else _SETTINGS
    settings = {name: engine.setting(name) for name in names}
    own = {
        "engine": {"name": "sglang", "version": engine_version(), "flags": flags(settings, draft_config)},
        "method": engine.method if engine.worker is not None else None,
        "target": model_facts(engine.config),
        "draft": draft_facts(engine, checkpoint),
        "vocab_map": map_facts(engine, checkpoint),
        "taps": tap_facts(engine),
        "verification": {"rule": "synthetic", "lossless": False} if engine.is_simulated else {},
        "speculation": _speculation(engine),
    }
    return run_header(
        "sglang",
        own,
        vocabulary=vocabulary,
        target_config=engine.config.hf_config,
        draft_config=draft_config,
        is_eager=engine.is_eager,
        is_full=is_full,
        unavailable={**_OUT_OF_REACH, **_by_method(engine), **problems},
    )


def model_facts(config: Any) -> Facts:
    """Size and kind of a model, from SGLang's ModelConfig."""
    return {
        "id": model_id(str(config.model_path)),
        "revision": getattr(config, "revision", None),
        "vocab_size": config.vocab_size,
        "num_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "dtype": str(config.dtype).removeprefix("torch."),
        "quantization": getattr(config, "quantization", None),
        "max_length": config.context_len,
    }


def draft_facts(engine: Engine, checkpoint: Checkpoint | None) -> Facts | None:
    """The draft as it runs, beside what its checkpoint holds."""
    if engine.draft is None or engine.draft_config is None:
        return None
    # Source: SGLang 0.5.23 srt/speculative/eagle_worker_v2.py, ``init_lm_head``.
    words: list[str] | None = [] if engine.method == "draft_model" else ["embed_tokens"]
    if getattr(engine.draft, "load_lm_head_from_target", False) or engine.method == "eagle":
        words = ["embed_tokens", "lm_head"]
    if engine.method == "mtp":
        words = None  # a part of the target's checkpoint, under names of the model's own
    facts, config = model_facts(engine.draft_config), engine.draft_config.hf_config
    return shared.draft_facts(facts, engine.draft, engine.target, config, checkpoint, words)


def map_facts(engine: Engine, checkpoint: Checkpoint | None) -> Facts | None:
    """The map as SGLang has it: d2t read as offsets, or a list of target ids that was given for the run."""
    if engine.draft is None:
        return None
    targets, is_eagle3 = engine.target_ids, engine.method == "eagle3"
    if targets is not None:
        return shared.map_facts(
            targets - np.arange(len(targets)),
            checkpoint,
            source="checkpoint" if is_eagle3 else "file",
            applied="offset" if is_eagle3 else "direct",
        )
    if is_eagle3 and checkpoint is not None and not has_map(checkpoint) and _is_reduced(engine):
        return {"source": "missing", "t2d": kept_ids(checkpoint)}
    return {"applied": "identity"}


def _is_reduced(engine: Engine) -> bool:
    """The draft's head has other rows than the target has tokens."""
    rows = num_rows(getattr(engine.draft, "lm_head", None))
    return rows is not None and rows != engine.config.vocab_size


def tap_facts(engine: Engine) -> Facts | None:
    """Which states the draft is fed; what the config declares beside what the engine really taps."""
    boundaries = engine.boundaries
    if boundaries is None or engine.draft is None:
        return None
    facts: Facts = {
        "boundaries": list(boundaries),
        "order": list(boundaries),
        # Of EAGLE-1 SGLang feeds what its target returns, which is after the final norm.
        "normed": engine.method in ("eagle", "mtp"),
    }
    if engine.method != "eagle3" or engine.draft_config is None:
        return facts
    config = engine.draft_config.hf_config
    declared, numbering = declared_layers(config)
    nested = getattr(config, "eagle_config", None) or {}
    own = nested.get(LAYER_IDS) if isinstance(nested, Mapping) else None
    if own:  # SGLang reads these, and no others
        declared, numbering = [int(layer) for layer in own], "output"
    if declared is None:
        return facts | {"origin": "default"}
    meant = [layer + (numbering == "output") for layer in declared]
    if own and len(meant) == len(boundaries) and sorted(meant) == list(boundaries):
        facts["boundaries"] = meant  # joined in the order of the layers, whatever is declared
    return facts | {"declared": declared, "numbering": numbering, "origin": "config" if own else "default"}


def request_rule(engine: Engine, is_greedy: bool) -> Facts:
    """The acceptance rule for a request, where settings leave it to the temperature.

    Source: SGLang 0.5.23 srt/speculative/eagle_utils.py, ``eagle_sample``.

    Args:
        engine: what runs.
        is_greedy: the request asks for the first choice.
    """
    if is_greedy or engine.is_always_greedy:
        return {"rule": "greedy", "lossless": is_greedy}
    if engine.setting("speculative_use_block_verification"):
        return {"rule": "block", "lossless": True}
    if engine.setting("speculative_use_rejection_sampling"):
        return {"rule": "rejection_sampling", "lossless": True}
    thresholds = {
        name: engine.setting(f"speculative_accept_{name}") for name in ("threshold_single", "threshold_acc")
    }
    known = [value for value in thresholds.values() if isinstance(value, (int, float))]
    return {"rule": "target_only", "lossless": all(value >= 1 for value in known), **thresholds}


def _by_method(engine: Engine) -> Facts:
    """What a way of drafting cannot give, and why."""
    if engine.draft is None and engine.worker is not None:
        return LOOKUP
    return PART_OF_TARGET if engine.method == "mtp" else {}


def _speculation(engine: Engine) -> Facts:
    """How much is proposed in a step."""
    facts: Facts = {"num_draft_tokens": engine.num_nodes}
    if engine.topk > 1 and engine.draft is not None:
        facts["tree"] = {"topk": engine.topk, "depth": engine.num_steps, "num_nodes": engine.num_nodes}
    return facts
