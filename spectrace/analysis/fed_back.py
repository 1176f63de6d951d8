"""How long the state is that the draft reads at each depth: the target's at the first, its own behind it.

A norm leaves every state the same length, so that the spread says which form is fed back. Judges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spectrace.analysis.block import Block
from spectrace.format.records import Run

_DEPTHS = 16
"""Depths that are told apart; deeper ones are left out."""


@dataclass(slots=True)
class Lengths:
    """RMS of the states read at one depth."""

    first_step: int
    """Number of the first step with such a state."""
    n: int = 0
    total: float = 0.0
    lowest: float = float("inf")
    highest: float = 0.0

    @property
    def mean(self) -> float:
        """Mean RMS."""
        return self.total / self.n


class FedBackTally:
    """RMS of the draft's input, by depth."""

    FIELDS = ("draft_inputs.rms", "proposal_ids", "flags")

    def __init__(self, run: Run) -> None:
        self.depths: dict[int, Lengths] = {}
        """Depth from 0 -> lengths."""

    def add(self, block: Block) -> None:
        """Counts a block."""
        for depth in range(_DEPTHS):
            found = block.element("draft_inputs.rms", np.full(block.num_rows, depth))
            if found is None:
                return
            rows = block.is_real & found.known & np.isfinite(found.values)
            if not rows.any():
                return
            values = found.values[rows]
            first = int(block.numbers(np.flatnonzero(rows))[0])
            lengths = self.depths.setdefault(depth, Lengths(first))
            lengths.n += len(values)
            lengths.total += float(values.sum())
            lengths.lowest = min(lengths.lowest, float(values.min()))
            lengths.highest = max(lengths.highest, float(values.max()))
