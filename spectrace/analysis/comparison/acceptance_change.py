"""Is B accepted otherwise than A? Every number of both with the interval of the difference.

Counts the proposals of paired requests, those behind a fork too: other prompts would make other numbers. What
an engine accepted at rates that it was given says nothing of its draft and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectrace.analysis.acceptance import SIMULATED_SENTENCE
from spectrace.analysis.comparison.rows import SIMULATED, SUMMED, Rows
from spectrace.analysis.intervals import Change, Mean, Ratio, Share, change_of_mean, change_of_share
from spectrace.format.columns import Array
from spectrace.format.counts import MAX_POSITIONS
from spectrace.format.figures import count_of


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of both traces."""

    name: str
    """alpha1 | acceptance_rate | accept_length | position 0 | ..."""
    values: tuple[float | None, float | None]
    n: tuple[int, int]
    """Trials: proposals, of a position the proposals that reached it."""
    change: Change | None
    """B less A; None where one has none."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON; an end of the interval that too few steps leave open is null."""
        ends = (
            (None, None, None)
            if self.change is None
            else (self.change.value, self.change.low, self.change.high)
        )
        difference, low, high = (None if x is None or not np.isfinite(x) else x for x in ends)
        return {
            "name": self.name,
            "a": self.values[0],
            "b": self.values[1],
            "n": list(self.n),
            "difference": difference,
            "low": low,
            "high": high,
            "is_shown": self.change is not None and self.change.is_shown,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceChange:
    """Acceptance of both traces over paired requests."""

    proposals: tuple[int, int]
    simulated: tuple[int, int]
    """Proposals that are left out: the engine accepted at rates that it was given."""
    overall: Sequence[Measure]
    """alpha1, acceptance rate, accept length."""
    positions: Sequence[Measure]
    """c_j by position: accepted of the proposals that accepted everything before and proposed there."""

    @property
    def is_shown(self) -> bool:
        """Whether any number differs by more than its interval."""
        measures = (*self.overall, *self.positions)
        return any(measure.change is not None and measure.change.is_shown for measure in measures)

    @property
    def left_out(self) -> str:
        """What is said of proposals that are left out; empty where there is none."""
        told = [f"{count_of(n, 'proposal')} of {label}" for n, label in zip(self.simulated, "AB") if n]
        return f"{SIMULATED_SENTENCE} Left out: {' and '.join(told)}." if told else ""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "proposals": list(self.proposals),
            "simulated": list(self.simulated),
            "is_shown": self.is_shown,
            **{measure.name: measure.to_mapping() for measure in self.overall},
            "positions": [measure.to_mapping() for measure in self.positions],
        }


def compare_acceptance(a: Rows, b: Rows) -> AcceptanceChange:
    """Acceptance of both and the change of each number."""
    one, other = _Tally(a), _Tally(b)
    n = one.count, other.count
    overall = (
        _measure("alpha1", one.alpha1, other.alpha1, n, change_of_share(one.alpha1, other.alpha1)),
        _measure("acceptance_rate", one.rate, other.rate, n, change_of_mean(one.rate, other.rate)),
        _measure("accept_length", one.length, other.length, n, change_of_mean(one.length, other.length)),
    )
    depth = min(max(one.depth, other.depth), MAX_POSITIONS)
    return AcceptanceChange(
        proposals=n,
        simulated=(one.simulated, other.simulated),
        overall=overall,
        positions=[_at(position, one.at(position), other.at(position)) for position in range(depth)],
    )


def _at(position: int, one: Share, other: Share) -> Measure:
    trials = one.trials, other.trials
    return _measure(f"position {position}", one, other, trials, change_of_share(one, other))


def _measure(
    name: str,
    one: Share | Ratio | Mean,
    other: Share | Ratio | Mean,
    n: tuple[int, int],
    change: Change | None,
) -> Measure:
    return Measure(name, (one.value, other.value), n, change)


class _Tally:
    """Sums over the proposals of one trace that the models decided about."""

    def __init__(self, rows: Rows) -> None:
        is_proposal = (rows.drafted > 0) & (rows.marks & SUMMED == 0)
        real = is_proposal & (rows.marks & SIMULATED == 0)
        self.simulated = int((is_proposal & ~real).sum())
        accepted = rows.accepted[real].astype(np.float64)
        drafted = rows.drafted[real].astype(np.float64)
        self.count = int(real.sum())
        self.alpha1 = Share(int((accepted > 0).sum()), self.count)
        sums = float(accepted.sum()), float(drafted.sum())
        squares = float(accepted @ accepted), float(accepted @ drafted), float(drafted @ drafted)
        self.rate = Ratio(self.count, *sums, squares)
        own = accepted + 1  # the target's own token
        self.length = Mean(self.count, float(own.sum()), float(own @ own))
        self._accepted = _at_least(rows.accepted[real])
        self._reached = _at_least(rows.reached[real])

    @property
    def depth(self) -> int:
        """Positions that any proposal reached."""
        return len(self._reached)

    def at(self, position: int) -> Share:
        """Accepted of those that reached a position."""
        return Share(_item(self._accepted, position), _item(self._reached, position))


def _at_least(counts: Array) -> list[int]:
    """[p] how many of the counts are greater than p."""
    tally = np.bincount(np.minimum(counts, MAX_POSITIONS))
    found: list[int] = np.cumsum(tally[::-1])[::-1][1:].tolist()
    return found


def _item(counts: Sequence[int], at: int) -> int:
    return counts[at] if at < len(counts) else 0
