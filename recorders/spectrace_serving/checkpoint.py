"""The draft's checkpoint beside the draft that was loaded: weights without a source, or without a place.

The loaders of EAGLE-3 heads in vLLM and SGLang do not say, so the names are compared here. Reads headers and
the vocabulary map only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spectrace.checkpoint.directory import open_checkpoint
from spectrace.checkpoint.records import Checkpoint
from spectrace.errors import CheckpointError

# Fused parameters and their parts. Source: vLLM 0.32.0 model_executor/models/llama_eagle3.py,
# hf_to_vllm_mapper; SGLang 0.5.23 srt/models/llama_eagle3.py, load_weights.
_FUSED = {".qkv_proj.": (".q_proj.", ".k_proj.", ".v_proj."), ".gate_up_proj.": (".gate_proj.", ".up_proj.")}
_TABLES = ("d2t", "t2d")


def find_checkpoint(model: str, revision: str | None) -> Checkpoint | None:
    """The checkpoint of a model by its folder or its name on the hub, if it is on this machine.

    Args:
        model: as the engine was given it.
        revision: of a model on the hub.
    """
    path = Path(model)
    try:
        if not path.is_dir():
            from huggingface_hub import snapshot_download

            path = Path(snapshot_download(model, revision=revision, local_files_only=True))
        return open_checkpoint(path)
    except (CheckpointError, OSError, ValueError):
        return None


def parameter_lists(checkpoint: Checkpoint, draft: Any, shared: Sequence[str]) -> dict[str, list[str]]:
    """Names that the model has and the checkpoint lacks, and the other way round.

    Args:
        checkpoint: of the draft.
        draft: the loaded draft model.
        shared: which of embed_tokens and lm_head are the target's, so that the draft needs none of its own.
    """
    held = {canonical(name) for name in checkpoint.tensors}
    wanted = {part for name, _ in draft.named_parameters() for part in _parts(canonical(name))}
    wanted -= {"draft_id_to_target_id"}
    missing = {name for name in wanted - held if not any(word in name for word in shared)}
    if _ties_embeddings(draft):
        missing = {name for name in missing if "lm_head" not in name}
    unexpected = {name for name in held - wanted if name.rpartition(".")[2] not in _TABLES}
    return {"missing": sorted(missing), "unexpected": sorted(_unshared(unexpected, shared))}


def _ties_embeddings(draft: Any) -> bool:
    return bool(getattr(getattr(draft, "config", None), "tie_word_embeddings", False))


def _unshared(names: Iterable[str], shared: Sequence[str]) -> Iterator[str]:
    """Without weights of the checkpoint in whose place the engine takes the target's."""
    return (name for name in names if "embed_tokens" not in name and name.split(".")[0] not in shared)


def canonical(name: str) -> str:
    """A parameter's name without what differs between checkpoints and engines.

    >>> canonical("midlayer.self_attn.q_proj.weight"), canonical("model.layers.0.hidden_norm.weight")
    ('layers.0.self_attn.q_proj.weight', 'layers.0.hidden_norm.weight')
    """
    return re.sub(r"^midlayer\.", "layers.0.", name.removeprefix("model."))


def _parts(name: str) -> tuple[str, ...]:
    """The parameters of a checkpoint that one of an engine's is made of.

    >>> _parts("layers.0.mlp.gate_up_proj.weight")
    ('layers.0.mlp.gate_proj.weight', 'layers.0.mlp.up_proj.weight')
    """
    for fused, parts in _FUSED.items():
        if fused in name:
            return tuple(name.replace(fused, part) for part in parts)
    return (name,)


def kept_ids(checkpoint: Checkpoint) -> list[int] | None:
    """Target ids that t2d marks; no engine looks at it."""
    table = None if checkpoint.table is None else checkpoint.table.t2d
    if table is None or table.ndim != 1:
        return None
    found: list[int] = np.flatnonzero(table).tolist()
    return found


def has_map(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint has the table that maps draft ids."""
    return checkpoint.table is not None and checkpoint.table.d2t is not None
