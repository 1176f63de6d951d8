"""What a loop has in hand, brought into one form: K nodes, K+1 rows of logits, a parent for each node.

Shapes are checked, values are not: looking at one would wait for the device, and every index is held within
bounds, since a device that meets a wrong one is lost to the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Tree:
    """A proposal beside the target's logits, on one device."""

    proposal: Tensor
    """[K] ids in the target's vocabulary."""
    judges: Tensor | None
    """[K] row of the target that judges each node, that of its parent; None for a chain."""
    logits: Tensor
    """[K+1, V], the root's row first."""


def ids_of(given: Any, device: torch.device | None = None) -> Tensor:
    """Ids of any shape and kind as [n] int64, a copy: the loop may write to its own at once."""
    return _moved(torch.as_tensor(given).reshape(-1).to(torch.int64, copy=True), device)


def _moved(values: Tensor, device: torch.device | None) -> Tensor:
    """The same on another device; what comes from the host does not wait for it."""
    if device is not None and device.type == "cuda" and values.device.type == "cpu":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def tree_of(proposal: Tensor, target_logits: Any, parents: Any, paths: Any) -> Tree:
    """Brings a round into form.

    Args:
        proposal: [K] ids in the target's vocabulary, where the logits are.
        target_logits: [K+1, V], the root's row first; with `paths` also [leaves, depth + 1, V], a row for
            each place of `paths`.
        parents: [K] index of the parent node, -1 for the root; None for a chain, or where `paths` says it.
        paths: [leaves, depth + 1] rows of root and nodes from the root (0) to each leaf, filled up with -1:
            `retrieve_indices` of EAGLE.

    Raises:
        ValueError: the shapes do not fit each other.
    """
    size = len(proposal)
    logits = torch.as_tensor(target_logits)
    judges = None
    if paths is not None:
        places = torch.as_tensor(paths)
        if places.ndim != 2:
            raise ValueError(f"paths has {places.ndim} axes; [leaves, depth + 1] belongs here")
        places = ids_of(places, logits.device).view(places.shape).clamp_(-1, size)
        judges = places.new_full((size + 2,), -1)
        judges[places[:, 1:]] = places[:, :-1]  # what fills up, -1, lands behind the last node
        judges = judges[1 : size + 1]
        if logits.shape[:2] == places.shape and logits.ndim == 3:
            logits = _by_row(logits, places, size)
    elif parents is not None:
        judges = ids_of(parents, logits.device) + 1
        if len(judges) != size:
            raise ValueError(f"parents has {len(judges)} entries for {size} draft tokens")
    logits = logits.reshape(-1, logits.shape[-1])
    if len(logits) != size + 1:
        raise ValueError(
            f"target_logits has {len(logits)} rows for {size} draft tokens; it is one more than these, the "
            "first for the token after the last committed one"
        )
    return Tree(proposal, judges, logits)


def _by_row(logits: Tensor, places: Tensor, size: int) -> Tensor:
    """[K+1, V] of logits [leaves, depth + 1, V]: a row that lies on several paths is the same on each."""
    where = places.new_zeros(size + 2)
    where[places.reshape(-1)] = torch.arange(places.numel(), device=places.device)
    return logits.reshape(-1, logits.shape[-1])[where[: size + 1]]
