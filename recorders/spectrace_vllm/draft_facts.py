"""Header facts of the draft: the model as vLLM loaded it, its map, and which states it is fed.

What the checkpoint declares stands beside what really runs; nothing is concluded from the difference.
"""

from __future__ import annotations

from typing import Any

from spectrace.checkpoint.records import Checkpoint
from spectrace_serving import facts as shared
from spectrace_serving.checkpoint import has_map, kept_ids
from spectrace_serving.facts import Facts, declared_layers
from spectrace_transformers.facts import model_id
from spectrace_vllm.engine import Engine

_OWNED = {"embed_tokens": "has_own_embed_tokens", "lm_head": "has_own_lm_head"}
"""What a draft may share with the target, and the attribute by which vLLM says that it does not."""


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
    facts = model_facts(getattr(engine.speculative, "draft_model_config", None))
    words = [word for word, owns in _OWNED.items() if getattr(engine.draft, owns, True) is False]
    if getattr(getattr(engine.draft, "model", None), "has_separate_mask_embedding", True) is False:
        words.append("mask_embedding")  # a place that stays empty unless the checkpoint fills it
    # An MTP draft is a part of the target's checkpoint, under names of the model's own.
    known = None if engine.method == "mtp" else words
    return shared.draft_facts(facts, engine.draft, engine.target, engine.draft_config, checkpoint, known)


def map_facts(engine: Engine, checkpoint: Checkpoint | None) -> Facts | None:
    """The map as vLLM has it: it reads d2t as offsets, always; without one zeros stay."""
    table = engine.map
    if engine.has_own_tokenizer:
        return {"source": "tokenizers"}
    if table is None:
        return {"applied": "identity"} if engine.draft is not None else None
    if checkpoint is not None and not has_map(checkpoint):
        return {"source": "missing", "t2d": kept_ids(checkpoint)}
    offsets = table.detach().cpu().numpy()
    return shared.map_facts(offsets, checkpoint, source="checkpoint", applied="offset")


def tap_facts(engine: Engine, checkpoint: Checkpoint | None) -> Facts | None:
    """Which states the draft is fed; what the config declares beside what the engine really taps."""
    boundaries = engine.boundaries
    if boundaries is None or engine.draft is None:
        return None
    facts: Facts = {
        "boundaries": list(boundaries),
        "order": list(boundaries),
        "normed": engine.feeds_last_state,
    }
    if engine.feeds_last_state:
        return facts
    declared, numbering = declared_layers(engine.draft_config)
    if declared is None:
        return facts | {"origin": "default"}
    meant = [layer + 1 for layer in declared] if engine.block is not None else declared
    is_used = sorted(set(meant)) == list(boundaries)
    if is_used and len(meant) == len(boundaries):
        facts["boundaries"] = list(meant)  # vLLM joins them in ascending order, whatever is declared
    origin = "config" if is_used else "default"
    return facts | {"declared": declared, "numbering": numbering, "origin": origin}
