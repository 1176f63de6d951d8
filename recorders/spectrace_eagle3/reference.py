"""One plain forward of the target over a text, fingerprinted at every boundary.

It shows what the taps should have been: no cache, no draft, nothing of the decoder takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spectrace.errors import UnsupportedEngine
from spectrace_eagle3.steps import fingerprints, kept_rows
from spectrace_transformers.taps import find_layers, hook_boundaries


@torch.no_grad()
def reference_rows(
    model: Any, prompt_ids: Sequence[int], new_ids: Sequence[int] = ()
) -> dict[int, list[dict[str, Any]]]:
    """Boundary -> the rows of `TraceWriter.reference`.

    Rows are at the positions that a step keeps of a prompt, and as many behind it.

    Args:
        model: the target.
        prompt_ids: one prompt.
        new_ids: what came after it; the last of them was read by nobody and has no row.

    Raises:
        UnsupportedEngine: its layers are not found.
    """
    layers = find_layers(model)
    if layers is None:
        raise UnsupportedEngine("eagle3", f"no list of decoder layers in {type(model).__name__}")
    seen: dict[int, Tensor] = {}
    handles = hook_boundaries(layers, range(len(layers) + 1), lambda k, hidden: seen.update({k: hidden}))
    read = [*prompt_ids, *new_ids[:-1]]
    try:
        model(input_ids=torch.tensor([read], device=model.device), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    kept = kept_rows(len(prompt_ids))
    if len(read) > len(prompt_ids):
        kept += [len(prompt_ids) + row for row in kept_rows(len(read) - len(prompt_ids))]
    return {
        boundary: [
            {"position": position, "rms": print_["rms"], "projections": print_["projections"]}
            for position, print_ in zip(kept, fingerprints(states[0][kept]), strict=True)
        ]
        for boundary, states in sorted(seen.items())
    }
