"""How much was accepted, where and in which request: what every statistical rule starts from."""

from __future__ import annotations

from typing import Any

import numpy as np

from spectrace.analysis.block import Block, tally
from spectrace.analysis.intervals import Mean, Share
from spectrace.format.columns import Array
from spectrace.format.counts import MAX_POSITIONS
from spectrace.format.records import Run

MIN_STEPS = 200
"""Fewer proposals allow no statistical verdict."""
MIN_PROMPTS = 5
"""Fewer different prompts allow none that compares texts: one prompt differs from the next by half."""
_LARGEST = 2.0**62


class PerRequest:
    """One number for each request, growing with the requests seen."""

    def __init__(self, dtype: Any = np.int64, fill: float = 0) -> None:
        self._values: Array = np.full(64, fill, dtype)
        self._fill = fill
        self._size = 0

    def upto(self, size: int) -> Array:
        """The numbers, with room for so many requests; write to the array in place."""
        self._size = max(self._size, size)
        if size > len(self._values):
            larger = np.full(max(size, 2 * len(self._values)), self._fill, self._values.dtype)
            larger[: len(self._values)] = self._values
            self._values = larger
        return self._values

    def add(self, block: Block, values: Array) -> None:
        """Adds [rows] values to their requests."""
        requests, index = block.request_groups
        sums = np.bincount(index, weights=values, minlength=len(requests))
        total = self.upto(int(requests[-1]) + 1)
        # A made-up length may be any 64-bit number; a sum of those is none.
        total[requests] += np.clip(sums, -_LARGEST, _LARGEST).astype(total.dtype)

    @property
    def values(self) -> Array:
        """One number for each request, [requests]."""
        return self._values[: self._size]


class Witnesses:
    """Numbers of the first steps that show something."""

    LIMIT = 5

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.count = 0
        """How many steps showed it."""

    def note(self, block: Block, rows: Array) -> None:
        """Adds rows of a block, given as a mask [rows]."""
        found = int(np.count_nonzero(rows))
        self.count += found
        if found and len(self.steps) < self.LIMIT:
            numbers = block.numbers(np.flatnonzero(rows)[: self.LIMIT - len(self.steps)])
            self.steps += numbers.tolist()

    def note_tokens(self, block: Block, tokens: Array) -> None:
        """Adds the rows of draft tokens, given as a mask [tokens]."""
        if tokens.any():
            rows = np.zeros(block.num_rows, bool)
            rows[block.token_rows[tokens]] = True
            self.note(block, rows)

    def __bool__(self) -> bool:
        return self.count > 0


class Sample:
    """Acceptance over the proposals that the models decided about: what causes are sought in."""

    FIELDS = ("request", "proposal_ids", "parents", "num_accepted", "emitted_ids", "flags", "stop")

    def __init__(self, run: Run) -> None:
        self.proposals = 0
        self.accepted_sum = 0
        self.accepted_squares = 0
        self.drafted = 0
        self.emitted = 0
        self.accepted_first = 0
        self.trees = 0
        self.proposed_at = np.zeros(MAX_POSITIONS, np.int64)
        self.reached_at = np.zeros(MAX_POSITIONS, np.int64)
        self.accepted_at = np.zeros(MAX_POSITIONS, np.int64)
        self.lengths = np.zeros(MAX_POSITIONS + 1, np.int64)
        """[K] proposals of K tokens."""
        self.request_proposals = PerRequest()
        self.request_first = PerRequest()
        """Per request: proposals whose first token was accepted."""

    def add(self, block: Block) -> None:
        """Counts a block."""
        real, accepted = block.is_real, block.accepted
        self.proposals += int(real.sum())
        self.trees += int((real & block.is_tree).sum())
        own = accepted[real]
        self.accepted_sum += int(own.sum())
        self.accepted_squares += int((own * own).sum())
        self.drafted += int(block.drafted[real].sum())
        self.emitted += int(block.emitted[real].sum())
        self.accepted_first += int((own > 0).sum())
        self.lengths += tally(block.drafted[real], MAX_POSITIONS + 1)
        reached = block.chain_reached
        index = block.token_index
        usable = (block.is_real & ~block.is_tree)[block.token_rows]
        self.proposed_at += tally(index[usable])
        self.reached_at += tally(index[reached])
        self.accepted_at += tally(index[reached & block.token_accepted])
        self.request_proposals.add(block, real)
        self.request_first.add(block, real & (accepted > 0))

    @property
    def alpha1(self) -> Share:
        """Proposals whose first token was accepted."""
        return Share(self.accepted_first, self.proposals)

    @property
    def accepted(self) -> Mean:
        """Draft tokens accepted per proposal."""
        return Mean(self.proposals, self.accepted_sum, self.accepted_squares)

    @property
    def accept_length(self) -> float | None:
        """1 + accepted / proposals."""
        return None if self.accepted.value is None else 1 + self.accepted.value

    @property
    def acceptance_rate(self) -> Share:
        """Accepted of drafted tokens."""
        return Share(self.accepted_sum, self.drafted)

    def conditional(self, position: int) -> Share:
        """c_j: accepted at a position of those that reached it."""
        return Share(int(self.accepted_at[position]), int(self.reached_at[position]))

    @property
    def depth(self) -> int:
        """Number of positions that any chain proposed at."""
        return int(np.count_nonzero(self.proposed_at))

    @property
    def is_enough(self) -> bool:
        """Whether there are steps enough for a statistical verdict."""
        return self.proposals >= MIN_STEPS
