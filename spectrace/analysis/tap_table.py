"""The tapped states as a table: form, length against the reference, nearest boundary, course over the run.

Bounded: the first rows of the first requests for directions, sums per stretch of steps for lengths. Judges
nothing; see `diagnosis.tap_layer` and `diagnosis.tap_form`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.fingerprints import TapTally
from spectrace.analysis.diagnosis.reference import TapComparison, compare_taps, declared_boundary
from spectrace.format.columns import Array
from spectrace.format.records import Run

_MOST_STRETCHES = 1024
_MOST_TAPS = 64
_LARGEST = 1e150
"""Beyond any RMS; keeps sums of made-up ones finite."""
_USUAL = 3 / 7
_SAME_LENGTH = 0.05
"""Relative difference in RMS that precision and a few rows explain."""


class CourseTally:
    """Mean RMS of each tap over stretches of steps, doubled in length whenever there are too many.

    The state of a text's first token is left out: most models blow it up by a factor of ten and more.
    """

    FIELDS = ("proposal_ids", "taps.boundary", "taps.index", "taps.position", "taps.rms", "taps.nonfinite")

    def __init__(self, run: Run) -> None:
        self.length = 1
        """Steps of a stretch."""
        self._sums: dict[int, Array] = {}
        self._counts: dict[int, Array] = {}
        self.nonfinite: dict[int, int] = {}
        """Tap -> rows with values that are no numbers."""
        self.first_step: dict[int, int] = {}
        """Tap -> the first step that has it."""

    def add(self, block: Block) -> None:
        """Counts a block."""
        rms = block.columns.get("taps.rms")
        key = block.columns.get("taps.boundary") or block.columns.get("taps.index")
        if key is None:
            return
        while block.first_row + block.num_rows > self.length * _MOST_STRETCHES:
            self._double()
        owner = np.repeat(np.arange(block.num_rows), block.lengths(key.leaf.path))
        keys, has_key = _each(block, key.leaf.path, len(owner))
        values, has_rms = _each(block, "taps.rms" if rms is not None else "", len(owner))
        positions, has_position = _each(block, "taps.position", len(owner))
        bad, has_bad = _each(block, "taps.nonfinite", len(owner))
        is_first = has_position & (positions == 0)
        stretch = block.numbers(owner) // self.length
        for tap in np.unique(keys[has_key]).astype(np.int64).tolist()[:_MOST_TAPS]:
            own = has_key & (keys == tap)
            if tap not in self._sums and len(self._sums) >= _MOST_TAPS:
                continue
            self.first_step.setdefault(tap, int(block.numbers(owner[own][0])))
            sound = own & has_rms & ~is_first & (np.abs(values) < _LARGEST)
            for sums, amounts in ((self._sums, values), (self._counts, np.ones(len(values)))):
                total = sums.setdefault(tap, np.zeros(_MOST_STRETCHES))
                total += np.bincount(stretch[sound], amounts[sound], _MOST_STRETCHES)
            self.nonfinite[tap] = self.nonfinite.get(tap, 0) + int((own & has_bad & (bad > 0)).sum())

    def _double(self) -> None:
        self.length *= 2
        for sums in (self._sums, self._counts):
            for tap, values in sums.items():
                pairs = values.reshape(-1, 2).sum(axis=1)
                sums[tap] = np.concatenate([pairs, np.zeros(_MOST_STRETCHES - len(pairs))])

    @property
    def taps(self) -> list[int]:
        """Every tap seen, by boundary or place."""
        return sorted(self.first_step)

    def course(self, tap: int, total: int) -> tuple[float | None, ...]:
        """Mean RMS of each stretch, None where no state was recorded."""
        used = min(-(-total // self.length), _MOST_STRETCHES)
        sums, counts = self._sums.get(tap), self._counts.get(tap)
        if sums is None or counts is None:
            return (None,) * used
        return tuple(
            float(s / c) if c else None for s, c in zip(sums[:used].tolist(), counts[:used].tolist())
        )


def _each(block: Block, path: str, size: int) -> tuple[Array, Array]:
    """[taps] a number of each tap, and whether it is known; unknown where the column is damaged."""
    column = block.columns.get(path)
    values, known = np.zeros(size), np.zeros(size, bool)
    if column is None:
        return values, known
    there = np.ones(size, bool) if column.known is None else column.known
    if len(there) == size and int(there.sum()) == len(column.values):
        values[there] = column.values
        known = there.copy()
    return values, known


@dataclass(frozen=True, slots=True, kw_only=True)
class TapRow:
    """One tap."""

    tap: int
    """Boundary, or place among the run's taps where boundaries are not recorded."""
    declared: int | None
    """Boundary that the draft expects here."""
    best: int | None = None
    """Boundary of the reference that it resembles most."""
    best_cosine: float | None = None
    declared_cosine: float | None = None
    rms: float | None = None
    """Mean over the run; where there is a reference, median over the rows it has too."""
    reference_rms: float | None = None
    """Median of the reference at the declared boundary, same rows."""
    num_compared: int = 0
    nonfinite: int = 0
    """Rows with values that are no numbers."""
    first_step: int = 0
    course: Sequence[float | None] = ()
    """[stretch] mean RMS."""
    stretch: int = 1
    """Steps of a stretch."""

    @property
    def ratio(self) -> float | None:
        """RMS / that of the reference."""
        return _ratio(self.rms, self.reference_rms)

    @property
    def is_elsewhere(self) -> bool:
        """It resembles another boundary than the one it should be."""
        return self.best is not None and self.declared is not None and self.best != self.declared

    @property
    def is_scaled(self) -> bool:
        """Its length is not the reference's."""
        return self.ratio is not None and abs(self.ratio - 1) > _SAME_LENGTH

    @property
    def usual(self) -> float | None:
        """Median RMS over the run."""
        known = [value for value in self.course if value is not None and value > 0]
        return float(np.median(known)) if known else None


def tap_rows(facts: Facts) -> list[TapRow]:
    """A row for each tap of a trace; `facts` must hold `TapTally` and `CourseTally`."""
    tally, compared = facts.of(CourseTally), compare_taps(facts)
    by_index = facts.of(TapTally).by_index
    rows = [
        TapRow(
            tap=tap,
            declared=declared_boundary(facts.run, tap, by_index),
            rms=_mean(tally.course(tap, facts.num_steps)),
            nonfinite=tally.nonfinite.get(tap, 0),
            first_step=tally.first_step[tap],
            course=tally.course(tap, facts.num_steps),
            stretch=tally.length,
        )
        for tap in tally.taps
    ]
    if compared is None:
        return rows
    found = {match.key: at for at, match in enumerate(compared.matches)}
    return [_with_reference(row, compared, found.get(row.tap)) for row in rows]


def _with_reference(row: TapRow, compared: TapComparison, at: int | None) -> TapRow:
    if at is None:
        return row
    match = compared.matches[at]
    reference = None
    if match.declared in compared.references:
        _, rms, there = compared.reference_rows(match, match.declared)
        reference = _median(rms[there])
    return replace(
        row,
        best=compared.best[at],
        best_cosine=compared.best_cosine[at],
        declared_cosine=compared.declared_cosine[at],
        rms=_median(match.rms),
        reference_rms=reference,
        num_compared=len(match.rms),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _median(values: Array) -> float | None:
    known = values[np.abs(values) < _LARGEST]
    return float(np.median(known)) if len(known) else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


# --- course --------------------------------------------------------------------------------------


def heat(row: TapRow, cells: int) -> tuple[float | None, ...]:
    """The course against the usual RMS, for drawing: 3/7 as usual, 1 four times it, 0 a third of it.

    One seventh is half an octave, so that what changes by less than a fifth looks even.

    Args:
        row: a tap.
        cells: at most so many; of the stretches that share a cell the one farthest from usual is shown, so
            that no jump is hidden.

    >>> [level and round(7 * level) for level in heat(TapRow(tap=2, declared=2, course=(1, 1.1, 4, None)), 4)]
    [3, 3, 7, None]
    """
    usual = row.usual
    levels = [_level(value, usual) for value in row.course]
    cells = min(cells, len(levels))
    found: list[float | None] = []
    for cell in range(max(cells, 0)):
        own = [
            v
            for v in levels[cell * len(levels) // cells : (cell + 1) * len(levels) // cells]
            if v is not None
        ]
        found.append(max(own, key=lambda level: abs(level - _USUAL)) if own else None)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """Where a tap's length is farthest from usual."""

    first_row: int
    last_row: int
    ratio: float
    """RMS there / usual."""


def largest_jump(row: TapRow) -> Jump | None:
    """The stretch farthest from the usual RMS; None without any state.

    >>> largest_jump(TapRow(tap=2, declared=2, course=(1.0, 1.0, 4.0), stretch=8))
    Jump(first_row=16, last_row=23, ratio=4.0)
    """
    usual = row.usual
    if usual is None:
        return None
    ratios = [
        (abs(math.log(v / usual)), at, v / usual)
        for at, v in enumerate(row.course)
        if v is not None and v > 0
    ]
    _, at, ratio = max(ratios, key=lambda item: item[0])
    return Jump(first_row=at * row.stretch, last_row=(at + 1) * row.stretch - 1, ratio=ratio)


def _level(value: float | None, usual: float | None) -> float | None:
    if value is None or usual is None:
        return None
    if value <= 0:
        return 0.0
    half_octaves = round(2 * (math.log2(value) - math.log2(usual)))
    return _USUAL + min(max(half_octaves, -3), 4) / 7
