"""A checkpoint becomes a draft that runs beside one target: weights in place, what was missing noted.

Embeddings and LM head come from the target where the checkpoint has none of its own. Weights that are
missing otherwise stay at random values, as with EAGLE's `strict=False`, but are named in the log and in
the trace.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_MOST_MISSING = 64
"""Times as many values as are there that may be missing: a layer left out, and no absurd size."""


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
    sizes = {"num_taps": num_taps, "target_hidden_size": target_size, "draft_vocab_size": rows}
    head = _build(checkpoint, len(target_head), **sizes)
    shared = _share(checkpoint, head, target)
    missing = _place(head, weights, shared)
    head.to(target_head.device, target_head.dtype).eval().requires_grad_(False)
    if missing:
        logger.warning("%s: no weights for %s; they stay random", path, ", ".join(missing))
    if vocab.source == "missing":
        words = "%s: no d2t for %s of %s ids; draft ids are taken for target ids"
        logger.warning(words, path, f"{rows:,}", f"{len(target_head):,}")
    return Draft(
        path=path,
        head=head,
        vocab=vocab,
        taps=plan,
        missing=missing,
        unexpected=tuple(sorted(set(weights) - set(head.state_dict()))),
        shared=shared,
    )


def _build(checkpoint: DraftCheckpoint, target_vocab_size: int, **sizes: int) -> Eagle3Head:
    """The network, once the sizes that config.json claims are found to be those of the tensors.

    Args:
        checkpoint: its files.
        target_vocab_size: rows of the embeddings, where they are the target's.
        sizes: for `Eagle3Head`.

    Raises:
        CheckpointError: they are not, or there is no such network.
    """
    path, config, weights = checkpoint.path, checkpoint.config, checkpoint.weights
    options: dict[str, Any] = {**sizes, "fc_bias": "fc.bias" in weights}
    if EMBEDDINGS not in weights:
        if sizes["target_hidden_size"] != config.layer.hidden_size:
            what = f"is missing, and the target's are {sizes['target_hidden_size']:,} wide"
            raise CheckpointError(path, what, EMBEDDINGS)
        options["num_embeddings"] = target_vocab_size
    try:
        with torch.device("meta"):  # takes no memory
            places = Eagle3Head(config, **options).state_dict()
    except Exception as error:  # transformers judges settings in many ways
        what = f"config.json describes no draft that can be built ({type(error).__name__}: {error})"
        raise CheckpointError(path, " ".join(what.split())[:300]) from error
    _check_shapes(path, places, weights)
    given = sum(weight.numel() for weight in weights.values())
    missing = sum(place.numel() for name, place in places.items() if name not in weights)
    missing -= places[EMBEDDINGS].numel() if EMBEDDINGS not in weights else 0
    if missing > _MOST_MISSING * given:
        what = f"config.json asks for {missing:,} values that are not there; the tensors hold {given:,}"
        raise CheckpointError(path, what)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # what stays random is the same in every run
        return Eagle3Head(config, **options)


def _check_shapes(path: Path, places: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    for name, place in places.items():
        weight = weights.get(name)
        if weight is None:
            continue
        if weight.shape != place.shape:
            what = f"has shape {list(weight.shape)}, config.json asks for {list(place.shape)}"
            raise CheckpointError(path, what, name)
        if weight.dtype not in _DTYPES:
            kind = str(weight.dtype).removeprefix("torch.")
            raise CheckpointError(path, f"is {kind}; quantized drafts are not run, dequantize it", name)


def _num_taps(checkpoint: DraftCheckpoint, target_size: int) -> int:
    fc = _matrix(checkpoint, "fc.weight")
    if fc is None:
        return len(checkpoint.config.layer_ids or (0, 0, 0))
    width = fc.shape[1]
    if width % target_size:
        what = f"takes {width:,} values, no multiple of the target's hidden size {target_size:,}"
        raise CheckpointError(checkpoint.path, what, "fc.weight")
    return int(width // target_size)


def _head_rows(checkpoint: DraftCheckpoint, target_vocab_size: int) -> int:
    head = _matrix(checkpoint, LM_HEAD)
    if head is not None:
        return len(head)
    if checkpoint.d2t is not None:
        return len(checkpoint.d2t)
    return checkpoint.config.draft_vocab_size or target_vocab_size


def _matrix(checkpoint: DraftCheckpoint, name: str) -> Tensor | None:
    """A weight that must have rows and columns; None where it is missing."""
    weight = checkpoint.weights.get(name)
    if weight is not None and (weight.ndim != 2 or not weight.numel()):
        raise CheckpointError(checkpoint.path, f"has shape {list(weight.shape)}, not rows and columns", name)
    return weight


def _share(checkpoint: DraftCheckpoint, head: Eagle3Head, target: Any) -> tuple[str, ...]:
    """Takes from the target what the checkpoint leaves to it, where the sizes agree."""
    shared = []
    embeddings = target.get_input_embeddings().weight  # [target vocab, hidden]
    output = target.get_output_embeddings().weight
    if EMBEDDINGS not in checkpoint.weights:
        head.embed_tokens.weight = torch.nn.Parameter(embeddings.detach())
        shared.append(EMBEDDINGS)
    if LM_HEAD not in checkpoint.weights and head.lm_head.weight.shape == output.shape:
        head.lm_head.weight = torch.nn.Parameter(output.detach())
        shared.append(LM_HEAD)
    return tuple(shared)


def _place(head: Eagle3Head, weights: dict[str, Tensor], shared: Sequence[str]) -> tuple[str, ...]:
    """Copies weights into the head; returns the names that nothing was found for."""
    places = head.state_dict()
    known = {name: weights[name] for name in places if name in weights}
    head.load_state_dict(known, strict=False)
    return tuple(sorted(set(places) - set(known) - set(shared)))
