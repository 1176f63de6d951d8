"""Fingerprints of the states that were tapped: rows of the first requests, widths, rows seen twice.

Bounded: the first requests, the first rows of each, the first steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spectrace.analysis.block import Block
from spectrace.format.columns import Array
from spectrace.format.projections import NUM_PROJECTIONS
from spectrace.format.records import Run

MAX_REQUESTS = 16
MAX_ROWS = 2048
"""Tap rows kept of one request."""
_LARGEST = 1e100
"""Beyond any value of a state."""


@dataclass(slots=True)
class TapRows:
    """Rows of one tap of one request."""

    positions: list[int] = field(default_factory=list)
    rms: list[float] = field(default_factory=list)
    projections: list[Array] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    is_prefill: list[bool] = field(default_factory=list)


class TapTally:
    """Tap rows of the first requests, widths of all taps read, and rows that were seen before."""

    FIELDS = (
        "request", "proposal_ids", "flags", "step", "taps.boundary", "taps.index", "taps.position",
        "taps.shape", "taps.rms", "taps.projections",
    )  # fmt: skip

    FIRST_STEPS = 16_384
    """They are the widest columns of a trace."""

    def __init__(self, run: Run) -> None:
        self.rows: dict[int, dict[int, TapRows]] = {}
        """Request -> tap (its place among the run's taps, or its boundary) -> rows."""
        self.by_index = False
        """Taps are named by their place, not by their boundary."""
        self.widths: dict[int, int] = {}
        """Width of the captured states -> rows."""
        self.width_steps: dict[int, int] = {}
        """Width -> first step."""
        self.compared = 0
        self.repeated = 0
        """Rows whose fingerprint was seen at another position of the same tap."""
        self.zero = 0
        self.stale_steps: list[int] = []

    def add(self, block: Block) -> None:
        """Counts a block."""
        shape = block.columns.get("taps.shape")
        if shape is None or not len(shape.values):
            return
        self._widths(block)
        taps = _taps_of(block)
        if taps is None:
            return
        self._stale(block, taps)
        self._keep(block, taps)

    def _widths(self, block: Block) -> None:
        shape = block.columns["taps.shape"]
        if len(shape.lengths) < 2 or shape.known is not None:
            return
        ends = np.cumsum(shape.lengths[1])
        given = shape.lengths[1] > 0
        owner = np.repeat(np.arange(block.num_rows), block.lengths("taps.shape"))[given]
        found, first, counts = np.unique(
            shape.values[ends[given] - 1].astype(np.int64), return_index=True, return_counts=True
        )
        for width, at, count in zip(found.tolist(), first.tolist(), counts.tolist()):
            self.widths[width] = self.widths.get(width, 0) + count
            self.width_steps.setdefault(width, int(block.numbers(owner[at])))

    def _stale(self, block: Block, taps: _Taps) -> None:
        """Rows with the fingerprint of another position; boundary 0 repeats with every repeated token."""
        deep = (taps.key > 0) | self.by_index
        is_whole = np.isfinite(taps.rms) & np.isfinite(taps.projections).all(axis=1)
        usable = np.flatnonzero(deep & taps.has_position & is_whole)
        zero = usable[taps.rms[usable] == 0]
        usable = usable[taps.rms[usable] > 0]
        self.compared += len(usable) + len(zero)
        self.zero += len(zero)
        with np.errstate(over="ignore"):
            prints = np.ascontiguousarray(taps.projections[usable].astype(np.float32)).view(np.uint32)
        weights = np.arange(1, NUM_PROJECTIONS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        digest = (prints.astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
        order = np.lexsort((usable, digest, taps.key[usable]))
        same = (np.diff(taps.key[usable][order]) == 0) & (digest[order][1:] == digest[order][:-1])
        moved = np.diff(taps.position[usable][order]) != 0
        again = usable[order[1:][same & moved]]
        self.repeated += len(again)
        rows = np.unique(taps.row[np.concatenate([again, zero])])
        self.stale_steps = (self.stale_steps + block.numbers(rows).tolist())[:5]

    def _keep(self, block: Block, taps: _Taps) -> None:
        self.by_index = self.by_index or taps.by_index
        requests = block.requests[taps.row]
        first = block.is_prefill
        steps = block.scalar("step")
        if steps is not None:
            first = first | (steps.known & (steps.values == 0))
        for request in np.unique(requests).tolist():
            if request not in self.rows and len(self.rows) >= MAX_REQUESTS:
                continue
            own = self.rows.setdefault(request, {})
            for at in np.flatnonzero((requests == request) & taps.has_position).tolist():
                rows = own.setdefault(int(taps.key[at]), TapRows())
                if len(rows.positions) < MAX_ROWS:
                    rows.positions.append(int(taps.position[at]))
                    rows.rms.append(float(taps.rms[at]))
                    rows.projections.append(taps.projections[at])
                    rows.steps.append(int(block.numbers(taps.row[at])))
                    rows.is_prefill.append(bool(first[taps.row[at]]))


@dataclass(slots=True)
class _Taps:
    """The taps of a block that have a fingerprint, one entry each."""

    row: Array
    key: Array
    position: Array
    has_position: Array
    rms: Array
    projections: Array
    by_index: bool


def _taps_of(block: Block) -> _Taps | None:
    column = block.columns.get("taps.projections")
    if column is None or column.known is not None or len(column.lengths) < 2:
        return None
    row = np.repeat(np.arange(block.num_rows), block.lengths("taps.projections"))
    given = column.lengths[1] == NUM_PROJECTIONS
    inner = np.repeat(given, column.lengths[1])
    projections = column.values[inner].reshape(-1, NUM_PROJECTIONS).astype(np.float64)
    size = len(given)
    position, has_position = _tap_values(block, "taps.position", size)
    rms, has_rms = _tap_values(block, "taps.rms", size)
    boundary, has_boundary = _tap_values(block, "taps.boundary", size)
    index, has_index = _tap_values(block, "taps.index", size)
    by_index = bool(not has_boundary.any() and has_index.any())
    key, has_key = (index, has_index) if by_index else (boundary, has_boundary)
    usable = given & has_key
    kept = usable[given]
    return _Taps(
        row[usable],
        key[usable].astype(np.int64),
        position[usable].astype(np.int64),
        has_position[usable],
        possible(np.where(has_rms, rms, np.nan))[usable],
        possible(projections[kept]),
        by_index,
    )


def possible(values: Array) -> Array:
    """Numbers that a state can have; larger ones, made up, overflow when they are squared, and become NaN."""
    found: Array = np.where(np.abs(values) < _LARGEST, values, np.nan)
    return found


def _tap_values(block: Block, path: str, size: int) -> tuple[Array, Array]:
    """[taps] a number of each tap, and whether it is known."""
    column = block.columns.get(path)
    values, known = np.zeros(size), np.zeros(size, bool)
    if column is None:
        return values, known
    slots = np.ones(size, bool) if column.known is None else column.known
    if len(slots) != size or int(slots.sum()) != len(column.values):
        return values, known
    values[slots] = column.values
    return values, slots.copy()
