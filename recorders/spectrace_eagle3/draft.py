"""A checkpoint becomes a draft that runs beside one target: weights in place, what was missing noted.

Embeddings and LM head come from the target where the checkpoint has none of its own. Weights that are
missing otherwise stay at random values, as with EAGLE's `strict=False`, but are named in the log and in
the trace.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spectrace.errors import CheckpointError, UnsupportedEngine
from spectrace_eagle3.checkpoint import DraftCheckpoint, VocabMap, map_vocabulary, read_checkpoint
from spectrace_eagle3.config import TapPlan, plan_taps
from spectrace_eagle3.head import Eagle3Head
from spectrace_transformers.taps import find_layers

logger = logging.getLogger("spectrace")

EMBEDDINGS, LM_HEAD = "embed_tokens.weight", "lm_head.weight"


@dataclass(slots=True, kw_only=True)
class Draft:
    """A head, and everything that belongs to it."""

    path: Path
    head: Eagle3Head
    vocab: VocabMap
    taps: TapPlan
    missing: tuple[str, ...]
    """Weights that nothing gave; they are random."""
    unexpected: tuple[str, ...]
    """Tensors of the checkpoint that this decoder has no place for."""
    shared: tuple[str, ...]
    """Weights that are the target's."""


def load_draft(path: Path, target: Any, boundaries: Sequence[int] | None = None) -> Draft:
    """Loads an EAGLE-3 draft for a target.

    Args:
        path: folder of the checkpoint.
        target: a transformers model.
        boundaries: k of B(k) to feed it with, instead of what its config says.

    Raises:
        CheckpointError: the checkpoint cannot be read, or does not fit the target.
        UnsupportedEngine: the target's layers are not found.
    """
    layers = find_layers(target)
    if layers is None:
        raise UnsupportedEngine("eagle3", f"no list of decoder layers in {type(target).__name__}")
    checkpoint = read_checkpoint(path)
    weights, config = checkpoint.weights, checkpoint.config
    target_head = target.get_output_embeddings().weight  # [target vocab, hidden]
    target_size = target.config.get_text_config().hidden_size
    num_taps = _num_taps(checkpoint, target_size)
    rows = _head_rows(checkpoint, len(target_head))
    vocab = map_vocabulary(checkpoint, rows, len(target_head))
    plan = plan_taps(path, config, num_taps, len(layers), None if boundaries is None else tuple(boundaries))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # what stays random is the same in every run
        head = Eagle3Head(
            config,
            num_taps=num_taps,
            target_hidden_size=target_size,
            draft_vocab_size=rows,
            fc_bias="fc.bias" in weights,
        )
    shared = _share(checkpoint, head, target)
    missing = _place(path, head, weights, shared)
    head.to(target_head.device, target_head.dtype).eval().requires_grad_(False)
    if missing:
        logger.warning("%s: no weights for %s; they stay random", path, ", ".join(missing))
    return Draft(
        path=path,
        head=head,
        vocab=vocab,
        taps=plan,
        missing=missing,
        unexpected=tuple(sorted(set(weights) - set(head.state_dict()))),
        shared=shared,
    )


def _num_taps(checkpoint: DraftCheckpoint, target_size: int) -> int:
    fc = checkpoint.weights.get("fc.weight")
    if fc is None:
        return len(checkpoint.config.layer_ids or (0, 0, 0))
    width = fc.shape[-1]
    if width % target_size:
        what = f"takes {width:,} values, no multiple of the target's hidden size {target_size:,}"
        raise CheckpointError(checkpoint.path, what, "fc.weight")
    return int(width // target_size)


def _head_rows(checkpoint: DraftCheckpoint, target_vocab_size: int) -> int:
    head = checkpoint.weights.get(LM_HEAD)
    if head is not None:
        return len(head)
    if checkpoint.d2t is not None:
        return len(checkpoint.d2t)
    return checkpoint.config.draft_vocab_size or target_vocab_size


def _share(checkpoint: DraftCheckpoint, head: Eagle3Head, target: Any) -> tuple[str, ...]:
    """Takes from the target what the checkpoint leaves to it, where the sizes agree."""
    shared = []
    embeddings = target.get_input_embeddings().weight  # [target vocab, hidden]
    output = target.get_output_embeddings().weight
    if EMBEDDINGS not in checkpoint.weights:
        if embeddings.shape[1] != head.config.layer.hidden_size:
            what = f"is missing, and the target's are {embeddings.shape[1]:,} wide"
            raise CheckpointError(checkpoint.path, what, EMBEDDINGS)
        head.embed_tokens.weight = torch.nn.Parameter(embeddings.detach())
        shared.append(EMBEDDINGS)
    if LM_HEAD not in checkpoint.weights and head.lm_head.weight.shape == output.shape:
        head.lm_head.weight = torch.nn.Parameter(output.detach())
        shared.append(LM_HEAD)
    return tuple(shared)


def _place(
    path: Path, head: Eagle3Head, weights: dict[str, Tensor], shared: Sequence[str]
) -> tuple[str, ...]:
    """Copies weights into the head; returns the names that nothing was found for."""
    places = head.state_dict()
    for name, place in places.items():
        if name in weights and weights[name].shape != place.shape:
            what = f"has shape {list(weights[name].shape)}, config.json asks for {list(place.shape)}"
            raise CheckpointError(path, what, name)
    known = {name: weights[name] for name in places if name in weights}
    head.load_state_dict(known, strict=False)
    return tuple(sorted(set(places) - set(known) - set(shared)))
