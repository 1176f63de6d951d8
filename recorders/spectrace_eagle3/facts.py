"""Header facts: what the decoder, the checkpoint and the target say about a run, in the names of a trace."""

from __future__ import annotations

import hashlib
import math
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

import spectrace
from spectrace.format.records import Draft as DraftRecord
from spectrace_eagle3.decoder import Eagle3Decoder
from spectrace_eagle3.draft import Draft
from spectrace_eagle3.sampling import Sampler
from spectrace_eagle3.tree import Chain, DynamicTree, Plan
from spectrace_transformers.facts import model_facts, model_id, rope_facts
from spectrace_transformers.token_text import Vocabulary

Facts = dict[str, Any]


def run_facts(decoder: Eagle3Decoder, tokenizer: Any, vocabulary: Vocabulary | None) -> Facts:
    """The whole header: nothing is loaded later.

    Args:
        decoder: about to run.
        tokenizer: the target's, where there is one.
        vocabulary: its tokens, where texts are captured.
    """
    model, draft, sampler = decoder.model, decoder.draft, decoder.sampler
    config = draft.head.config
    return {
        "recorder": {"name": "spectrace_eagle3", "version": spectrace.__version__},
        "engine": {
            "name": "spectrace_eagle3",
            "version": spectrace.__version__,
            "runner": {Chain: "chain", DynamicTree: "dynamic tree"}.get(type(decoder.plan), "static tree"),
            "flags": {
                "torch": version("torch"),
                "transformers": version("transformers"),
                "norm_before_residual": config.norm_before_residual,
                "norm_before_fc": config.norm_before_fc,
                "fc_norm": config.fc_norm,
                "norm_output": config.norm_output,
                "from_target": list(draft.shared),
            },
        },
        "method": "eagle3",
        "target": model_facts(model),
        "draft": _draft_facts(draft, model),
        "vocab_map": _map_facts(draft),
        "taps": _tap_facts(draft),
        "verification": {"rule": rule(decoder.plan, sampler), "lossless": True},
        "sampling": {
            "temperature": float(sampler.temperature),
            "top_k": sampler.top_k,
            "top_p": sampler.top_p,
            "seed": sampler.seed,
            "processors": sampler.processors,
        },
        "speculation": _speculation(decoder.plan),
        "tokenizer": {
            "digest": None if vocabulary is None else vocabulary.digest,
            "vocab_size": None if vocabulary is None else len(vocabulary),
            "bos_id": getattr(tokenizer, "bos_token_id", None),
            "eos_ids": sorted(decoder.eos_ids),
        },
        "training": config.training,
        "capture": {"mode": "eager", "text": vocabulary is not None},
    }


def rule(plan: Plan, sampler: Sampler) -> str:
    """The acceptance rule by its name in a trace: see verify.py."""
    if sampler.is_greedy:
        return "greedy"
    return "rejection_sampling" if isinstance(plan, Chain) else "target_only"


def _draft_facts(draft: Draft, model: Any) -> Facts:
    head, layer = draft.head, draft.head.config.layer
    return {
        "id": model_id(str(draft.path)),
        "vocab_size": len(draft.vocab.table),
        "head_rows": len(head.lm_head.weight),
        "hidden_size": layer.hidden_size,
        "num_layers": head.config.num_layers,
        "dtype": _dtype(head.fc.weight),
        "max_length": layer.max_position_embeddings,
        "rope": rope_facts(layer) or {},
        "rope_declared": head.config.rope_declared,
        "window": 0,
        "window_declared": head.config.window_declared,
        "parameters": {"missing": list(draft.missing), "unexpected": list(draft.unexpected)},
        "fingerprints": {name: fingerprint(weight) for name, weight in _weights(draft, model).items()},
    }


def _weights(draft: Draft, model: Any) -> dict[str, Tensor]:
    """The draft's own weights as they run, and the target's LM head where it could be mistaken for one."""
    weights: dict[str, Tensor] = {
        name: weight for name, weight in draft.head.state_dict().items() if name not in draft.shared
    }
    head = model.get_output_embeddings().weight
    if head.shape == draft.head.lm_head.weight.shape:
        weights["target.lm_head.weight"] = head
    return weights


def fingerprint(weight: Tensor) -> Facts:
    """Shape, RMS and SHA-256 of the bytes in row order."""
    held = weight.detach().cpu().contiguous()
    data = held.view(torch.uint8).numpy().tobytes()
    return {
        "shape": list(held.shape),
        "rms": float(held.float().pow(2).mean().sqrt()),
        "digest": "sha256:" + hashlib.sha256(data).hexdigest(),
    }


def other_weights(draft: Draft, model: Any, recorded: DraftRecord) -> list[str]:
    """Weights that a recorded run had otherwise than this draft, by their fingerprints.

    In another dtype the bytes differ anyway; there RMS decides.

    Args:
        draft: as loaded.
        model: the target.
        recorded: of a trace's header.
    """
    is_same_dtype = recorded.dtype == _dtype(draft.head.fc.weight)
    found = []
    for name, weight in _weights(draft, model).items():
        theirs, own = recorded.fingerprints.get(name), fingerprint(weight)
        if theirs is None:
            continue
        is_same = theirs.rms is None or math.isclose(theirs.rms, own["rms"], rel_tol=0.01)
        if is_same_dtype and theirs.digest is not None:
            is_same = theirs.digest == own["digest"]
        if not is_same:
            found.append(name)
    return found


def _map_facts(draft: Draft) -> Facts:
    vocab = draft.vocab
    facts = {
        "d2t": vocab.d2t,
        "t2d": vocab.t2d,
        "source": vocab.source,
        "applied": vocab.applied,
        "digest": vocab.digest,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _tap_facts(draft: Draft) -> Facts:
    plan = draft.taps
    facts = {
        "declared": plan.declared,
        "numbering": plan.numbering,
        "origin": plan.origin,
        "boundaries": plan.boundaries,
        "order": plan.boundaries,
        "normed": False,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _speculation(plan: Plan) -> Facts:
    if isinstance(plan, Chain):
        return {"num_draft_tokens": plan.num_draft_tokens}
    if isinstance(plan, DynamicTree):
        shape = {"topk": plan.topk, "depth": plan.depth, "num_nodes": plan.num_nodes}
    else:
        topk = 1 + max((path[-1] for path in plan.paths), default=0)
        shape = {"topk": topk, "depth": plan.depth, "num_nodes": len(set(plan.paths))}
    return {"num_draft_tokens": shape["num_nodes"], "tree": shape}


def _dtype(weight: Tensor) -> str:
    return str(weight.dtype).removeprefix("torch.")
