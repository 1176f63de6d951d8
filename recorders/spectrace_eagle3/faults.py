"""What the decoder can be told to do wrong, one fault of real engines each: for tests and sample traces.

Nothing here edits a number of a trace. The header says what an engine with the fault would say: weights
that were not loaded are named as missing, the rest is what a healthy engine says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from spectrace_eagle3.draft import Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The default is a healthy decoder."""

    map_as_direct: bool = False
    """Read the offsets in d2t as target ids."""
    tap_shift: int = 0
    """Capture boundary k + shift where k is meant."""
    normed_taps: bool = False
    """Feed the draft with the target's final norm applied to the states."""
    no_midlayer: bool = False
    """Leave the draft's transformer layers out: fc, norm, LM head."""
    swapped_feedback_norm: bool = False
    """Feed the state back after the final norm where it should be before, or the other way round."""
    keep_draft_kv: bool = False
    """Leave rejected tokens in the draft's cache."""
    position_shift: int = 0
    """Run the draft's own tokens this many positions off."""
    random_head: bool = False
    """Leave the draft's LM head at random values."""


HEALTHY = Faults()


def break_draft(draft: Draft, faults: Faults) -> None:
    """Applies the faults that are in the draft itself; a broken draft is not mended again."""
    head = draft.head
    if faults.map_as_direct and draft.vocab.d2t is not None:
        draft.vocab = replace(draft.vocab, table=torch.tensor(draft.vocab.d2t), applied="direct")
    if faults.no_midlayer:
        lost = tuple(name for name in head.state_dict() if name.startswith("layers."))
        draft.missing = tuple(sorted({*draft.missing, *lost}))
        head.layers = torch.nn.ModuleList()
    if faults.swapped_feedback_norm:
        head.norm_output = not head.norm_output
    if faults.random_head:
        draft.missing = tuple(sorted({*draft.missing, "lm_head.weight"}))
        generator = torch.Generator().manual_seed(0)
        weight = head.lm_head.weight
        noise = torch.randn(weight.shape, generator=generator) * 0.02
        head.lm_head.weight = torch.nn.Parameter(noise.to(weight), requires_grad=False)
