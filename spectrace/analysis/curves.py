"""Accept length along a run: over time, by context length, batch row and segment, in few bins.

For a plot: one number with its spread, by four things in one reading. Every sum of each group, for a table,
is in `breakdown`. One pass over the columns, in bounded memory; results are sums with which a caller makes a
mean and its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from spectrace.analysis.block import Block, blocks
from spectrace.analysis.breakdown import OTHERS
from spectrace.analysis.intervals import Mean
from spectrace.format.columns import Array

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

TIME_BINS = 40
"""Equal parts of the run, by step number."""
CONTEXT_BINS = 32
"""Powers of two."""
ROW_BINS = 64
"""Batch rows; those beyond are counted in the last."""
MAX_SEGMENTS = 16
"""Kinds of text told apart; those beyond are counted together."""
_PATHS = (
    "segment",
    "proposal_ids",
    "num_accepted",
    "emitted_ids",
    "parents",
    "position",
    "batch_row",
    "flags",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """The proposals of one part of a run."""

    start: int
    """First step, shortest context in tokens, or batch row."""
    accept_length: Mean
    """1 + accepted, over the proposals here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Accept length by three things; empty bins are left out."""

    over_time: tuple[Bin, ...]
    """Empty where the order of the steps is not known."""
    by_context: tuple[Bin, ...]
    """Empty where positions are not known."""
    by_row: tuple[Bin, ...]
    """Empty where no step says its batch row."""
    by_segment: Mapping[str, Mean] = field(default_factory=dict)
    """Kind of text -> accept length; empty where no step is tagged."""
    longest_context: int = 0
    """Tokens."""
    most_rows: int = 0
    """Batch rows used: the concurrency, where it was recorded."""


class _Sums:
    """Sums over bins."""

    def __init__(self, size: int) -> None:
        self.count = np.zeros(size, np.int64)
        self.total = np.zeros(size)
        self.squares = np.zeros(size)

    def add(self, at: Array, lengths: Array) -> None:
        size = len(self.count)
        at = np.clip(at, 0, size - 1)
        self.count += np.bincount(at, minlength=size)
        self.total += np.bincount(at, weights=lengths, minlength=size)
        self.squares += np.bincount(at, weights=lengths * lengths, minlength=size)

    def bins(self, starts: list[int]) -> tuple[Bin, ...]:
        return tuple(
            Bin(
                start=start,
                accept_length=Mean(int(self.count[at]), float(self.total[at]), float(self.squares[at])),
            )
            for at, start in enumerate(starts)
            if self.count[at]
        )


def curves(trace: Trace, on_progress: Callable[[int], None] | None = None) -> Curves:
    """Reads a trace once.

    Args:
        trace: an open trace.
        on_progress: told how many steps have been read.
    """
    steps = max(1, len(trace))
    width = -(-steps // TIME_BINS)
    time, context, row = _Sums(TIME_BINS), _Sums(CONTEXT_BINS), _Sums(ROW_BINS)
    segments: dict[str, Mean] = {}
    longest = rows = read = 0
    for block in blocks(trace, dict.fromkeys(_PATHS)):
        proposals = np.flatnonzero(block.is_proposal)
        lengths = 1.0 + block.accepted[proposals]
        time.add(block.numbers(proposals) // width, lengths)
        positions = np.maximum(block.positions[proposals], 0)
        context.add(np.floor(np.log2(np.maximum(positions, 1))).astype(np.int64), lengths)
        longest = max(longest, int(positions.max(initial=0)))
        rows = max(rows, _add_rows(row, block))
        _add_segments(segments, block)
        read += block.num_rows
        if on_progress is not None:
            on_progress(read)
    capture = trace.run.capture
    unknown = {} if capture is None else capture.unavailable
    # A trace of counts has an order and positions that nobody told.
    has_order, has_positions = "step" not in unknown, "position" not in unknown
    return Curves(
        over_time=time.bins([at * width for at in range(TIME_BINS)]) if has_order else (),
        by_context=context.bins([0, *(1 << at for at in range(1, CONTEXT_BINS))]) if has_positions else (),
        by_row=row.bins(list(range(ROW_BINS))),
        by_segment=segments,
        longest_context=longest,
        most_rows=rows,
    )


def _add_segments(sums: dict[str, Mean], block: Block) -> None:
    found = block.words("segment")
    if found is None:
        return
    codes, words = found
    for code, word in enumerate(words):
        lengths = 1.0 + block.accepted[block.is_proposal & (codes == code)]
        name = word if word in sums or len(sums) < MAX_SEGMENTS else OTHERS
        old = sums.get(name, Mean(0, 0.0, 0.0))
        if len(lengths):
            total, squares = float(lengths.sum()), float((lengths * lengths).sum())
            sums[name] = Mean(old.count + len(lengths), old.total + total, old.squares + squares)


def _add_rows(sums: _Sums, block: Block) -> int:
    found = block.scalar("batch_row")
    if found is None:
        return 0
    usable = np.flatnonzero(block.is_proposal & found.known & (found.values >= 0))
    sums.add(found.values[usable], 1.0 + block.accepted[usable])
    return int(found.values[usable].max(initial=-1)) + 1
