"""Header facts that any engine's live models and configs give, in the names of a trace.

Feature detection only: what is not there is left out. What a checkpoint declares stands beside what really
runs; nothing is concluded from the difference. Hooks nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from spectrace.checkpoint.records import Checkpoint
from spectrace_serving.checkpoint import kept_ids, parameter_lists
from spectrace_transformers.facts import rope_facts
from spectrace_transformers.reduction import Array

Facts = dict[str, Any]

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
BLOCK_LAYER_IDS = "target_layer_ids"
_DIGEST_LIMIT = 256 << 20
"""Largest weight whose bytes are hashed when the trace begins."""


def draft_facts(
    facts: Facts,
    draft: Module,
    target: Module,
    config: Any,
    checkpoint: Checkpoint | None,
    shared: Sequence[str] | None,
) -> Facts:
    """The draft as it runs, beside what its checkpoint holds.

    Args:
        facts: size and kind of the draft, by the engine's own names.
        draft: as it was loaded.
        target: with which it may share weights.
        config: of the draft, as transformers has it.
        checkpoint: of the draft, if it is on this machine.
        shared: which of embed_tokens and lm_head are the target's; None where the checkpoint's names differ.
    """
    parameters = None
    if checkpoint is not None and shared is not None:
        parameters = parameter_lists(checkpoint, draft, shared)
    return facts | {
        "vocab_size": getattr(config, "draft_vocab_size", None) or facts["vocab_size"],
        "head_rows": num_rows(getattr(draft, "lm_head", None)),
        "rope": (rope_facts(config) or {}) | rope_used(draft),
        "rope_declared": None if checkpoint is None else declared_rope(checkpoint),
        "parameters": parameters,
        "fingerprints": fingerprints(draft, target),
    }


def map_facts(offsets: Array, checkpoint: Checkpoint | None, *, source: str, applied: str) -> Facts:
    """A map that is in use.

    Args:
        offsets: [draft_vocab_size] target id - raw id.
        checkpoint: of the draft, if it is on this machine.
        source: where it is from.
        applied: how the engine reads it.
    """
    offsets = offsets.astype("<i8")
    return {
        "d2t": offsets.tolist(),
        "t2d": None if checkpoint is None else kept_ids(checkpoint),
        "source": source,
        "applied": applied,
        "digest": "sha256:" + hashlib.sha256(offsets.tobytes()).hexdigest(),
    }


def num_rows(head: Any) -> int | None:
    """Rows of an LM head that stand for tokens; engines pad them."""
    rows = getattr(head, "org_vocab_size", None)
    if isinstance(rows, int):
        return rows
    weight = getattr(head, "weight", None)
    return int(weight.shape[0]) if isinstance(weight, Tensor) else None


def rope_used(draft: Any) -> Facts:
    """Base of the first rotary embedding that the draft holds."""
    for module in draft.modules():
        base = getattr(module, "base", None)
        if hasattr(module, "rotary_dim") and isinstance(base, (int, float)):
            return {"rope_theta": float(base)}
    return {}


def declared_rope(checkpoint: Checkpoint) -> Facts | None:
    """Rotary settings as config.json writes them."""
    parameters = checkpoint.config.at("rope_parameters")
    if isinstance(parameters, Mapping):
        return dict(parameters)
    scaling = checkpoint.config.at("rope_scaling")
    theta = checkpoint.config.number("rope_theta")
    found = dict(scaling) if isinstance(scaling, Mapping) else {}
    return found if theta is None else {"rope_theta": theta, **found}


def fingerprints(draft: Module, target: Module) -> Facts:
    """The draft's own weights as they were loaded, and the target's head, for which one may be mistaken.

    Weights that a backend has packed into a form of its own are empty here, and left out.
    """
    shared = {id(parameter) for parameter in target.parameters()}
    found = {
        name: _fingerprint(weight)
        for name, weight in draft.named_parameters()
        if id(weight) not in shared and weight.is_floating_point() and weight.numel()
    }
    for owner, model in (("", draft), ("target.", target)):
        head = getattr(model, "lm_head", None)
        weight = getattr(head, "weight", None)
        if isinstance(weight, Tensor) and weight.is_floating_point() and weight.numel():
            # Rows beyond the vocabulary are padding.
            found[f"{owner}lm_head.weight"] = _fingerprint(weight[: num_rows(head)])
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


def declared_layers(config: Any) -> tuple[list[int] | None, str | None]:
    """Layer ids of the draft's config, and what they count.

    Top level: the input of layer L (vLLM, speculators). In eagle_config: its output (SpecForge,
    Model-Optimizer, SGLang), which vLLM's V1 runner takes for inputs and its V2 runner does not read.
    DFlash and DSpark name outputs, under a word of their own.
    """
    nested = getattr(config, "eagle_config", None) or {}
    block = getattr(config, "dflash_config", None) or {}
    for ids, numbering in (
        (getattr(config, LAYER_IDS, None), "input"),
        (nested.get(LAYER_IDS) if isinstance(nested, Mapping) else None, "output"),
        (block.get(BLOCK_LAYER_IDS) if isinstance(block, Mapping) else None, "output"),
        (getattr(config, BLOCK_LAYER_IDS, None), "output"),
    ):
        if ids and isinstance(ids, (list, tuple)):
            return [int(i) for i in ids], numbering
    return None, None


def eos_ids(config: Any) -> list[int] | None:
    """Ids that end a text, by a model's config."""
    ids = getattr(config, "eos_token_id", None)
    if ids is None:
        return None
    return sorted(ids) if isinstance(ids, (list, tuple)) else [int(ids)]


def raw_table(target_ids: Array | None, vocab_size: int, device: torch.device) -> Tensor:
    """[vocab_size] raw id of each target id, -1 for none.

    Args:
        target_ids: [draft_vocab_size] target id of each raw id; None where both vocabularies are one.
        vocab_size: of the target.
        device: where it is needed.
    """
    table = np.arange(vocab_size)
    if target_ids is not None:
        table = np.full(vocab_size, -1, np.int64)
        known = (target_ids >= 0) & (target_ids < vocab_size)
        table[target_ids[known]] = np.flatnonzero(known)
    return torch.from_numpy(table).to(device)


def without_missing(facts: Facts) -> Facts:
    """The facts without None, at every depth."""
    return {
        key: without_missing(value) if isinstance(value, dict) else value
        for key, value in facts.items()
        if value is not None
    }
