"""Which of the target's tokens the draft could have said at all: coverage, ceiling, the most missed.

Counts committed tokens, which every trace holds, against the ids that the draft's vocabulary keeps. Knows no
verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.id_map import Table
from spectrace.analysis.intervals import Share
from spectrace.format.columns import Array
from spectrace.format.records import Run

_MOST_IDS = 65_536
"""Missed ids that are told apart; a made-up trace may name more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A token that the target committed and the draft cannot express."""

    token_id: int
    count: int
    first_row: int
    """The step that first committed it."""


class CoverageTally:
    """Committed tokens of the steps with a proposal, by whether the draft's vocabulary has them."""

    FIELDS = ("proposal_ids", "emitted_ids", "flags")

    def __init__(self, run: Run) -> None:
        self._kept = Table(run).kept
        self.tokens = self.covered = 0
        """Tokens committed by steps with a proposal; those the draft can express."""
        self.first = self.first_covered = 0
        """The same of the first token of each such step."""
        self._missed: dict[int, list[int]] = {}

    def add(self, block: Block) -> None:
        """Counts a block."""
        column = block.columns.get("emitted_ids")
        if self._kept is None or column is None or column.known is not None:
            return
        lengths = block.lengths("emitted_ids")
        owner = np.repeat(np.arange(block.num_rows), lengths)
        used = block.is_real[owner]
        ids, owner = column.values.astype(np.int64)[used], owner[used]
        covered: Array = np.isin(ids, self._kept)
        is_first = np.concatenate([[True], owner[1:] != owner[:-1]])[: len(owner)]
        self.tokens += len(ids)
        self.covered += int(covered.sum())
        self.first += int(is_first.sum())
        self.first_covered += int((is_first & covered).sum())
        missed, at, counts = np.unique(ids[~covered], return_index=True, return_counts=True)
        rows = block.numbers(owner[~covered][at])
        for token, row, count in zip(missed.tolist(), rows.tolist(), counts.tolist()):
            entry = self._missed.get(token)
            if entry is not None:
                entry[0] += count
            elif len(self._missed) < _MOST_IDS:
                self._missed[token] = [count, row]

    @property
    def coverage(self) -> Share:
        """Committed tokens that the draft can express."""
        return Share(self.covered, self.tokens)

    @property
    def ceiling(self) -> Share:
        """Steps whose first committed token the draft can express: alpha1 of a greedy run is no higher."""
        return Share(self.first_covered, self.first)

    def most_missed(self, size: int) -> tuple[Missed, ...]:
        """The tokens missed most often, the earliest first among equals."""
        order = sorted(self._missed.items(), key=lambda item: (-item[1][0], item[1][1]))
        return tuple(
            Missed(token_id=token, count=count, first_row=row) for token, (count, row) in order[:size]
        )

    @property
    def num_missed(self) -> int:
        """Different tokens missed."""
        return len(self._missed)
