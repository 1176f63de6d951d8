"""Header facts of the draft: the model as vLLM loaded it, its map, and which states it is fed.

What the checkpoint declares stands beside what really runs; nothing is concluded from the difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from spectrace.checkpoint.records import Checkpoint
from spectrace_transformers.facts import model_id, rope_facts
from spectrace_vllm.checkpoint import has_map, kept_ids, parameter_lists
from spectrace_vllm.engine import Engine

Facts = dict[str, Any]

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
_DIGEST_LIMIT = 256 << 20
"""Largest weight whose bytes are hashed when the trace begins."""


def model_facts(config: Any) -> Facts:
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


def draft_facts(engine: Engine, checkpoint: Checkpoint | None) -> Facts | None:
    """The draft as it runs, beside what its checkpoint holds."""
    if engine.draft is None or engine.draft_config is None:
        return None
    config = engine.draft_config
    facts = model_facts(getattr(engine.speculative, "draft_model_config", None))
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


def map_facts(engine: Engine, checkpoint: Checkpoint | None) -> Facts | None:
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


def tap_facts(engine: Engine, checkpoint: Checkpoint | None) -> Facts | None:
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
