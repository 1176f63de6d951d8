"""Header facts: what vLLM's configs and the loaded models say about a run, in the names of a trace.

Feature detection only: a fact that an engine version does not offer is left out. Hooks nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

import spectrace
from spectrace.checkpoint.records import Checkpoint
from spectrace_transformers.facts import model_id, rope_facts
from spectrace_transformers.token_text import Vocabulary
from spectrace_vllm.checkpoint import find_checkpoint, has_map, kept_ids, parameter_lists
from spectrace_vllm.hooks import engine_version

Facts = dict[str, Any]

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
_METHODS = {
    "ngram": "ngram", "ngram_gpu": "ngram", "draft_model": "draft_model", "eagle": "eagle",
    "eagle3": "eagle3", "mtp": "mtp", "medusa": "medusa", "dflash": "dflash", "suffix": "suffix",
}  # fmt: skip
_NEVER = {
    "draft_kv_length": "vLLM keeps the draft's cache in pages and trims it by position alone",
    "overlaps": "the draft's distribution is gone when the target's is computed, one engine step later",
}
_DIGEST_LIMIT = 256 << 20
"""Largest weight whose bytes are hashed when the trace begins."""


class Engine:
    """What is asked of a live worker, by the names of this version of vLLM.

    Args:
        runner: the model runner.
        drafter: its proposer, None without speculation.
        kind: V1 or V2.
    """

    def __init__(self, runner: Any, drafter: Any, kind: str) -> None:
        self.runner = runner
        self.drafter = drafter
        self.kind = kind
        self.config = runner.vllm_config
        self.speculative = getattr(self.config, "speculative_config", None)
        self.target = unwrapped(getattr(runner, "model", None))
        self.draft = unwrapped(getattr(drafter, "model", None))
        self.draft_config = getattr(getattr(self.speculative, "draft_model_config", None), "hf_config", None)
        self.method = _METHODS.get(str(getattr(self.speculative, "method", None)), "other")
        self.device = torch.device(getattr(runner, "device", "cpu"))

    @property
    def boundaries(self) -> tuple[int, ...] | None:
        """The k of B(k) of the states that the draft is fed, as the target itself holds them.

        Source: vLLM 0.32.0 model_executor/models/interfaces.py, ``EagleModelMixin``: id L is taken before
        layer L runs, ids are sorted and given once.
        """
        for holder in (getattr(self.target, "model", None), self.target):
            layers = getattr(holder, "aux_hidden_state_layers", None)
            if layers:
                return tuple(int(layer) for layer in layers)
        if self.method == "eagle":
            return (int(self.config.model_config.get_total_num_hidden_layers()),)
        return None

    @property
    def map(self) -> Tensor | None:
        """[draft_vocab_size] offsets, None where both vocabularies are one."""
        found = getattr(self.draft, "draft_id_to_target_id", None)
        return found if isinstance(found, Tensor) else None

    @property
    def is_draft_greedy(self) -> bool:
        """The draft always takes its first choice, and the verifier takes its word for certain."""
        return getattr(self.speculative, "draft_sample_method", "greedy") == "greedy"


def unwrapped(model: Any) -> Any:
    """A model without the wrapper that replays graphs."""
    return model.unwrap() if callable(getattr(model, "unwrap", None)) else model


def run_facts(engine: Engine, vocabulary: Vocabulary | None, problems: Mapping[str, str]) -> Facts:
    """The header as far as it is known before the first request.

    Args:
        engine: what runs.
        vocabulary: the target's tokens, where texts are captured.
        problems: fields that will be missing, and why.
    """
    config, spec = engine.config, engine.speculative
    checkpoint = None
    draft_model = getattr(spec, "draft_model_config", None)
    if engine.draft is not None and draft_model is not None:
        checkpoint = find_checkpoint(draft_model.model, getattr(draft_model, "revision", None))
    return _without_missing(
        {
            "recorder": {"name": "spectrace_vllm", "version": spectrace.__version__},
            "engine": {
                "name": "vllm",
                "version": engine_version(),
                "runner": engine.kind,
                "flags": _flags(engine),
            },
            "method": engine.method if spec is not None else None,
            "target": _model(config.model_config),
            "draft": _draft(engine, checkpoint),
            "vocab_map": _map(engine, checkpoint),
            "taps": _taps(engine, checkpoint),
            "verification": _verification(spec),
            "speculation": {"num_draft_tokens": getattr(spec, "num_speculative_tokens", None)},
            "tokenizer": {
                "digest": None if vocabulary is None else vocabulary.digest,
                "vocab_size": None if vocabulary is None else len(vocabulary),
                "eos_ids": _eos_ids(config.model_config.hf_config),
            },
            "training": getattr(engine.draft_config, "training", None),
            "capture": {
                "mode": "eager" if config.model_config.enforce_eager else "unknown",
                "unavailable": {**_NEVER, **_lookup(engine), **problems},
                "text": vocabulary is not None,
            },
        }
    )


def _flags(engine: Engine) -> Facts:
    """Launch settings that bear on speculation."""
    config, spec = engine.config, engine.speculative
    scheduler = config.scheduler_config
    flags = {
        "torch": torch.__version__,
        "method": getattr(spec, "method", None),
        "draft_sample_method": getattr(spec, "draft_sample_method", None),
        "rejection_sample_method": getattr(spec, "rejection_sample_method", None),
        "disable_padded_drafter_batch": getattr(spec, "disable_padded_drafter_batch", None),
        "prompt_lookup_max": getattr(spec, "prompt_lookup_max", None),
        "prompt_lookup_min": getattr(spec, "prompt_lookup_min", None),
        "async_scheduling": getattr(scheduler, "async_scheduling", None),
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "enable_prefix_caching": config.cache_config.enable_prefix_caching,
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
        "pipeline_parallel_size": config.parallel_config.pipeline_parallel_size,
    }
    for name in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"):
        flags[name] = getattr(engine.draft_config, name, None)
    return {name: value for name, value in flags.items() if value is None or isinstance(value, (str, int))}


def _model(config: Any) -> Facts:
    """Size and kind of a model, from vLLM's ModelConfig."""
    text = getattr(config, "hf_text_config", config.hf_config)
    return {
        "id": model_id(str(config.model)),
        "revision": getattr(config, "revision", None),
        "vocab_size": getattr(text, "vocab_size", None),
        "num_layers": getattr(text, "num_hidden_layers", None),
        "hidden_size": getattr(text, "hidden_size", None),
        "dtype": str(config.dtype).removeprefix("torch."),
        "quantization": getattr(config, "quantization", None),
        "max_length": getattr(config, "max_model_len", None),
    }


def _draft(engine: Engine, checkpoint: Checkpoint | None) -> Facts | None:
    if engine.draft is None or engine.draft_config is None:
        return None
    config = engine.draft_config
    facts = _model(getattr(engine.speculative, "draft_model_config", None))
    declared = None if checkpoint is None else _declared_rope(checkpoint)
    return facts | {
        "vocab_size": getattr(config, "draft_vocab_size", None) or facts["vocab_size"],
        "head_rows": _num_rows(getattr(engine.draft, "lm_head", None)),
        "rope": (rope_facts(config) or {}) | _rope_used(engine.draft),
        "rope_declared": declared,
        "parameters": None if checkpoint is None else parameter_lists(checkpoint, engine.draft),
        "fingerprints": _fingerprints(engine),
    }


def _num_rows(head: Any) -> int | None:
    """Rows of an LM head that stand for tokens; vLLM pads them to a multiple of 64."""
    rows = getattr(head, "org_vocab_size", None)
    if isinstance(rows, int):
        return rows
    weight = getattr(head, "weight", None)
    return int(weight.shape[0]) if isinstance(weight, Tensor) else None


def _rope_used(draft: Any) -> Facts:
    """Base of the first rotary embedding that the draft holds."""
    for module in draft.modules():
        base = getattr(module, "base", None)
        if hasattr(module, "rotary_dim") and isinstance(base, (int, float)):
            return {"rope_theta": float(base)}
    return {}


def _declared_rope(checkpoint: Checkpoint) -> Facts | None:
    """Rotary settings as config.json writes them."""
    parameters = checkpoint.config.at("rope_parameters")
    if isinstance(parameters, Mapping):
        return dict(parameters)
    scaling = checkpoint.config.at("rope_scaling")
    theta = checkpoint.config.number("rope_theta")
    found = dict(scaling) if isinstance(scaling, Mapping) else {}
    return found if theta is None else {"rope_theta": theta, **found}


def _fingerprints(engine: Engine) -> Facts:
    """The draft's own weights as they were loaded, and the target's head, for which one may be mistaken.

    Weights that a backend has packed into a form of its own are empty here, and left out.
    """
    shared = {id(parameter) for parameter in engine.target.parameters()}
    found = {
        name: _fingerprint(weight)
        for name, weight in engine.draft.named_parameters()
        if id(weight) not in shared and weight.is_floating_point() and weight.numel()
    }
    for owner, model in (("", engine.draft), ("target.", engine.target)):
        head = getattr(model, "lm_head", None)
        weight = getattr(head, "weight", None)
        if isinstance(weight, Tensor) and weight.is_floating_point() and weight.numel():
            # Rows beyond the vocabulary are padding.
            found[f"{owner}lm_head.weight"] = _fingerprint(weight[: _num_rows(head)])
    return found


def _fingerprint(weight: Tensor) -> Facts:
    """Shape, RMS and, of a weight that is not too large, the SHA-256 of its bytes."""
    weight = weight.detach()
    facts: Facts = {
        "shape": list(weight.shape),
        "rms": float(torch.linalg.vector_norm(weight, dtype=torch.float32)) / max(weight.numel(), 1) ** 0.5,
    }
    if weight.nbytes <= _DIGEST_LIMIT:
        data = weight.cpu().contiguous().view(torch.uint8).numpy()
        facts["digest"] = "sha256:" + hashlib.sha256(data.data).hexdigest()
    return facts


def _map(engine: Engine, checkpoint: Checkpoint | None) -> Facts | None:
    """The map as vLLM has it: it reads d2t as offsets, always; without one zeros stay."""
    table = engine.map
    if table is None:
        return {"applied": "identity"} if engine.draft is not None else None
    if checkpoint is not None and not has_map(checkpoint):
        return {"source": "missing", "t2d": kept_ids(checkpoint)}
    offsets = table.detach().cpu().numpy().astype("<i8")
    return {
        "d2t": offsets.tolist(),
        "t2d": None if checkpoint is None else kept_ids(checkpoint),
        "source": "checkpoint",
        "applied": "offset",
        "digest": "sha256:" + hashlib.sha256(offsets.tobytes()).hexdigest(),
    }


def _taps(engine: Engine, checkpoint: Checkpoint | None) -> Facts | None:
    """Which states the draft is fed; what the config declares beside what the engine really taps."""
    boundaries = engine.boundaries
    if boundaries is None or engine.draft is None:
        return None
    facts: Facts = {
        "boundaries": list(boundaries),
        "order": list(boundaries),
        # Of EAGLE-1 vLLM feeds what its target returns, which is after the final norm.
        "normed": engine.method == "eagle",
    }
    if engine.method != "eagle3":
        return facts
    declared, numbering = _declared_layers(engine.draft_config)
    if declared is None:
        return facts | {"origin": "default"}
    is_used = sorted(set(declared)) == list(boundaries)
    if is_used and len(declared) == len(boundaries):
        facts["boundaries"] = list(declared)  # vLLM joins them in ascending order, whatever is declared
    origin = "config" if is_used else "default"
    return facts | {"declared": declared, "numbering": numbering, "origin": origin}


def _declared_layers(config: Any) -> tuple[list[int] | None, str | None]:
    """Layer ids of the draft's config, and what they count.

    Top level: the input of layer L (vLLM, speculators). In eagle_config: its output (SpecForge,
    Model-Optimizer, SGLang), which vLLM's V1 runner takes for inputs and its V2 runner does not read.
    """
    nested = getattr(config, "eagle_config", None) or {}
    for ids, numbering in (
        (getattr(config, LAYER_IDS, None), "input"),
        (nested.get(LAYER_IDS) if isinstance(nested, Mapping) else None, "output"),
    ):
        if ids and isinstance(ids, (list, tuple)):
            return [int(i) for i in ids], numbering
    return None, None


def _verification(spec: Any) -> Facts:
    """The rule, where the engine's settings alone decide it."""
    method = str(getattr(spec, "rejection_sample_method", "standard"))
    if method == "synthetic":
        rates = getattr(spec, "synthetic_acceptance_rates", None)
        return {"rule": "synthetic", "lossless": False, "rates": None if rates is None else list(rates)}
    if method == "block":
        return {"rule": "block", "lossless": True}
    return {} if method == "standard" else {"rule": "other", "lossless": False, "method": method}


def request_rule(engine: Engine, is_greedy: bool) -> str:
    """The acceptance rule for a request, where settings leave it to the temperature.

    Without draft probabilities vLLM takes q for 1 at the draft's token: accepted iff p >= u.
    Source: vLLM 0.32.0 v1/sample/rejection_sampler.py, ``rejection_random_sample_kernel``.
    """
    if is_greedy:
        return "greedy"
    return "target_only" if engine.is_draft_greedy else "rejection_sampling"


def _eos_ids(config: Any) -> list[int] | None:
    ids = getattr(config, "eos_token_id", None)
    if ids is None:
        return None
    return sorted(ids) if isinstance(ids, (list, tuple)) else [int(ids)]


def _lookup(engine: Engine) -> Facts:
    """What a proposer without a model cannot give."""
    if engine.draft is not None or engine.speculative is None:
        return {}
    reason = "a lookup copies tokens and has no distribution"
    names = ("draft_ids", "draft_logprobs", "draft_entropy", "draft_top", "draft_positions", "draft_inputs")
    return dict.fromkeys((*names, "taps"), reason)


def raw_table(engine: Engine, vocab_size: int) -> Tensor:
    """[vocab_size] raw id of each target id, -1 for none."""
    table = np.full(vocab_size, -1, np.int64)
    if engine.map is None:
        table = np.arange(vocab_size)
    else:
        offsets = engine.map.detach().cpu().numpy()
        targets = np.arange(len(offsets)) + offsets
        known = (targets >= 0) & (targets < vocab_size)
        table[targets[known]] = np.flatnonzero(known)
    return torch.from_numpy(table).to(engine.device)


def _without_missing(facts: Facts) -> Facts:
    """The facts without None, at every depth."""
    return {
        key: _without_missing(value) if isinstance(value, dict) else value
        for key, value in facts.items()
        if value is not None
    }
