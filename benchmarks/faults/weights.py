"""Faults of the draft's weights: not loaded, overwritten, rounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.faults.rig import Rig, shared_target
from spectrace_eagle3.draft import EMBEDDINGS, Draft


def _parameter(values: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(values, requires_grad=False)


def _noise(shape: torch.Size, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.02


def random_head(rig: Rig, out: Path) -> None:
    """The LM head is random, and no loader says so."""
    draft = rig.draft()
    draft.head.lm_head.weight = _parameter(_noise(draft.head.lm_head.weight.shape, rig.seed))
    rig.eagle3(out, draft=draft)


def constant_head(rig: Rig, out: Path) -> None:
    """The LM head is zero."""
    draft = rig.draft()
    draft.head.lm_head.weight = _parameter(torch.zeros_like(draft.head.lm_head.weight))
    rig.eagle3(out, draft=draft)


def overwritten_head(rig: Rig, out: Path) -> None:
    """The LM head is the target's, with all its rows."""
    draft = rig.draft()
    head = shared_target().get_output_embeddings().weight
    draft.head.lm_head.weight = _parameter(head.detach())
    raw_ids = torch.arange(len(head))
    raw_ids[: len(draft.vocab.table)] = draft.vocab.table  # behind the table's end nothing is added
    draft.vocab = replace(draft.vocab, table=raw_ids)
    rig.eagle3(out, draft=draft)


def random_embeddings(rig: Rig, out: Path) -> None:
    """The embeddings are neither loaded nor shared."""
    draft = rig.draft()
    draft.head.embed_tokens.weight = _parameter(_noise(draft.head.embed_tokens.weight.shape, rig.seed))
    draft.shared = tuple(name for name in draft.shared if name != EMBEDDINGS)
    draft.missing = (*draft.missing, EMBEDDINGS)
    rig.eagle3(out, draft=draft)


def blank_layer(rig: Rig, out: Path) -> None:
    """The attention of the draft's layer was allocated and never filled, and no loader says so."""
    draft = rig.draft()
    attention = draft.head.layers[0].self_attn
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        weight = getattr(attention, name).weight
        getattr(attention, name).weight = _parameter(torch.zeros_like(weight))
    rig.eagle3(out, draft=draft)


def round_weights(draft: Draft, bits: int) -> Draft:
    """Rounds every matrix to integers of so many bits with one scale for all of it."""
    most = 2 ** (bits - 1) - 1
    for name, weight in draft.head.named_parameters():
        if weight.ndim == 2 and name not in draft.shared:
            scale = weight.abs().max() / most
            weight.copy_((weight / scale).round().clamp(-most, most) * scale)
    return draft


def three_bits(rig: Rig, out: Path) -> None:
    """All matrices of the draft are rounded to 3 bits."""
    draft = round_weights(rig.draft(), 3)
    rig.eagle3(out, draft=draft, run={"draft": {"quantization": "int3"}})
