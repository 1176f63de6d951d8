"""What could be done differently with the same weights: the counterfactuals of `spectrace probe`.

Each is one change against how this decoder runs a draft, and one mistake that engines or scripts make.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from spectrace_eagle3.draft import EMBEDDINGS, Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The default is how this decoder runs the draft."""

    name: str
    map_read: str = "as it is"
    """as it is | direct | not at all."""
    tap_shift: int = 0
    order: tuple[int, ...] | None = None
    """Places of the taps in fc's input, where it is not the declared one."""
    is_tap_normed: bool = False
    token_shift: int = 1
    """Which token goes with the states at P: that at P + 1."""
    position_shift: int = 0
    """Of the draft's own tokens."""
    has_layers: bool = True
    swaps_feedback: bool = False
    swaps_residual: bool = False
    without_norm: str | None = None
    """norm_before_fc | fc_norm, left out."""
    without_layer_norm: str | None = None
    """hidden_norm (on the state) | input_layernorm (on the embedded token), left out of the first layer."""
    has_target_embeddings: bool = False
    keeps_rejected: bool = False
    """Rejected tokens stay in the draft's cache: makes a difference where chains are replayed."""


def variants(draft: Draft, num_layers: int, *, has_chains: bool = False) -> list[Variant]:
    """Those that make a difference for a draft, the unchanged one first.

    Args:
        draft: the draft.
        num_layers: of the target.
        has_chains: recorded chains are replayed.
    """
    config, boundaries = draft.head.config, draft.taps.boundaries
    found = [Variant(name="as this decoder runs it")]
    if draft.vocab.d2t is not None:
        found.append(Variant(name="d2t read as target ids", map_read="direct"))
        found.append(Variant(name="without d2t", map_read="not at all"))
    for shift, words in ((-1, "taps one layer down"), (1, "taps one layer up")):
        if all(0 <= k + shift <= num_layers for k in boundaries):
            found.append(Variant(name=words, tap_shift=shift))
    for order in list(permutations(range(len(boundaries))))[1:6]:
        places = " ".join(f"B({boundaries[place]})" for place in order)
        found.append(Variant(name=f"taps as {places}", order=order))
    found.append(Variant(name="taps after the final norm", is_tap_normed=True))
    for name in ("norm_before_fc", "fc_norm"):
        if getattr(config, name):
            found.append(Variant(name=f"without {name}", without_norm=name))
    for name in ("hidden_norm", "input_layernorm"):
        found.append(Variant(name=f"without {name}", without_layer_norm=name))
    side = "un-normed" if draft.head.norm_output else "normed"
    found.append(Variant(name=f"state fed back {side}", swaps_feedback=True))
    flag = "false" if config.norm_before_residual else "true"
    found.append(Variant(name=f"norm_before_residual {flag}", swaps_residual=True))
    if EMBEDDINGS not in draft.shared:
        found.append(Variant(name="the target's embeddings", has_target_embeddings=True))
    found.append(Variant(name="token P with the states at P", token_shift=0))
    found.append(Variant(name="own tokens one position late", position_shift=1))
    found.append(Variant(name="without the draft's layer", has_layers=False))
    if has_chains:
        found.append(Variant(name="rejected tokens in the cache", keeps_rejected=True))
    return found


def table_of(draft: Draft, variant: Variant) -> Tensor:
    """[draft_vocab_size] target id of each raw id under a variant."""
    if variant.map_read == "direct":
        return torch.tensor(draft.vocab.d2t)
    return torch.arange(len(draft.vocab.table)) if variant.map_read == "not at all" else draft.vocab.table


@contextmanager
def varied(draft: Draft, variant: Variant, model: Any) -> Iterator[None]:
    """Changes the network for a while."""
    head = draft.head
    first: Any = head.layers[0]
    before = head.config, head.layers, head.norm_output, first.norm_before_residual, head.embed_tokens.weight
    if variant.without_norm is not None:
        changes: dict[str, Any] = {variant.without_norm: False}
        head.config = replace(head.config, **changes)
    name = variant.without_layer_norm
    norm = None if name is None else getattr(first, name)
    if name is not None:
        setattr(first, name, torch.nn.Identity())
    if not variant.has_layers:
        head.layers = torch.nn.ModuleList()
    head.norm_output ^= variant.swaps_feedback
    first.norm_before_residual ^= variant.swaps_residual
    if variant.has_target_embeddings:
        own = model.get_input_embeddings().weight
        head.embed_tokens.weight = torch.nn.Parameter(own.detach(), requires_grad=False)
    try:
        yield
    finally:
        head.config, head.layers, head.norm_output, first.norm_before_residual, weight = before
        head.embed_tokens.weight = weight
        if name is not None:
            setattr(first, name, norm)
