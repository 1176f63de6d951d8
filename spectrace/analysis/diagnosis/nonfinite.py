"""Are there values that are no numbers? Where there are, no statistic of the trace means anything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.format.records import Run

_COUNTED = ("nonfinite.draft_logits", "nonfinite.target_logits", "taps.nonfinite")
_NEVER_NAN = ("target_logprobs", "draft_logprobs", "draft_entropy", "target_gaps", "overlaps")
"""Minus infinity is a token ruled out; what is not a number at all is a fault."""


class NonfiniteTally:
    """Counts of NaN and infinite values, as recorded, and of NaN among the statistics."""

    FIELDS = (*_COUNTED, *_NEVER_NAN)

    def __init__(self, run: Run) -> None:
        self.counts: dict[str, int] = {}
        self.steps = Witnesses()
        self.nan_steps = Witnesses()
        self.nans: dict[str, int] = {}

    def add(self, block: Block) -> None:
        """Counts a block."""
        bad = np.zeros(block.num_rows, bool)
        for path in _COUNTED:
            column = block.columns.get(path)
            if column is None:
                continue
            self.counts[path] = self.counts.get(path, 0)
            wrong = column.values > 0
            if wrong.any():
                self.counts[path] += int(column.values[wrong].astype(np.float64).sum())
                bad |= _rows_with(block, path, wrong)
        self.steps.note(block, bad)
        nan = np.zeros(block.num_rows, bool)
        for path in _NEVER_NAN:
            column = block.columns.get(path)
            if column is not None and (wrong := np.isnan(column.values)).any():
                self.nans[path] = self.nans.get(path, 0) + int(wrong.sum())
                nan |= _rows_with(block, path, wrong)
        self.nan_steps.note(block, nan)


def _rows_with(block: Block, path: str, wrong: np.ndarray) -> np.ndarray:
    """[rows] whether any stored value of a row's field is marked."""
    column = block.columns[path]
    rows = np.zeros(block.num_rows, bool)
    owner = np.arange(block.num_rows)[block.has(path)]
    if column.leaf.depth:
        owner = np.repeat(np.arange(block.num_rows), block.lengths(path))
    if column.known is not None:
        owner = owner[column.known]
    rows[owner[wrong]] = True
    return rows


def judge(facts: Facts) -> Iterator[Outcome]:
    """Counted values first, then statistics that are NaN."""
    tally = facts.of(NonfiniteTally)
    total = sum(tally.counts.values())
    if total or tally.nan_steps:
        steps = tally.steps if total else tally.nan_steps
        names = [name for name, count in {**tally.counts, **tally.nans}.items() if count]
        yield Finding(
            id="nonfinite/values",
            strength=Strength.CERTAIN if total else Strength.STRONG,
            summary=f"NaN or infinite values in {', '.join(names[:3])}, first at step {steps.steps[0]:,}."
            if steps.steps
            else f"NaN or infinite values in {', '.join(names[:3])}.",
            advice="Mend this before reading any rate; look for overflow in half precision or an empty mask.",
            evidence={
                **{n: c for n, c in {**tally.counts, **tally.nans}.items() if c},
                "steps_affected": steps.count,
            },
            steps=steps.steps,
        )
    elif tally.counts:
        yield Cleared(id="nonfinite/values", summary="none counted")
    else:
        yield facts.not_recorded(
            "nonfinite/values",
            "count non-finite logits in each step",
            "nonfinite.draft_logits",
            "nonfinite.target_logits",
        )
