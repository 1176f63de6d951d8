"""Tap rows against the rows of a reference forward: which boundary does each tap come from, and how far off is it?

Rows are matched by the index of their token. A reference belongs to one prompt and does not say which, so the
request that it fits best is compared. Bounded: the first requests, the first rows of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from spectrace.analysis.diagnosis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.format.columns import Array
from spectrace.format.projections import NUM_PROJECTIONS
from spectrace.format.records import Reference, Run

MAX_REQUESTS = 16
MAX_ROWS = 2048
"""Tap rows kept of one request."""


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
        "request", "proposal_ids", "flags", "step", "taps.boundary", "taps.index", "taps.position", "taps.shape",
        "taps.rms", "taps.projections",
    )  # fmt: skip

    FIRST_STEPS = 65_536
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
        usable = np.flatnonzero(deep & taps.has_position & np.isfinite(taps.rms))
        zero = usable[taps.rms[usable] == 0]
        usable = usable[taps.rms[usable] > 0]
        self.compared += len(usable) + len(zero)
        self.zero += len(zero)
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
        np.where(has_rms, rms, np.nan)[usable],
        projections[kept],
        by_index,
    )


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


# --- against the reference ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Rows of one tap that a reference has too."""

    key: int
    """Place among the run's taps, or boundary, as recorded."""
    declared: int
    """Boundary that the tap is declared to be."""
    positions: Array
    rows: Array
    """[n, 32]"""
    rms: Array
    """[n]"""
    is_prefill: Array
    """[n] bool"""
    steps: Sequence[int]


class Comparison:
    """The taps of the request that the reference fits best.

    Args:
        matches: one per tap.
        references: boundary -> position -> (rms, projections).
    """

    def __init__(
        self, matches: Sequence[Match], references: Mapping[int, Mapping[int, tuple[float, Array]]]
    ) -> None:
        self.matches = list(matches)
        self.references = references

    def reference_rows(self, match: Match, boundary: int) -> tuple[Array, Array, Array]:
        """Rows of the reference at a match's positions: [n, 32], their rms [n], and which of them exist [n]."""
        table = self.references[boundary]
        there = np.array([p in table for p in match.positions.tolist()], bool)
        empty = (np.nan, np.full(NUM_PROJECTIONS, np.nan))
        found = [table.get(p, empty) for p in match.positions.tolist()]
        return np.array([row for _, row in found]), np.array([rms for rms, _ in found]), there

    @cached_property
    def cosines(self) -> Array:
        """[taps, boundaries] mean cosine over the rows; boundaries in ascending order."""
        return np.array([[self._cosine(match, b) for b in self.boundaries] for match in self.matches])

    def _cosine(self, match: Match, boundary: int) -> float:
        rows, _, there = self.reference_rows(match, boundary)
        values = cosine(match.rows[there], rows[there])
        return float(np.mean(values)) if len(values) else -1.0

    @cached_property
    def boundaries(self) -> list[int]:
        """Boundaries of the reference."""
        return sorted(self.references)

    @property
    def best(self) -> list[int]:
        """Per tap, the boundary it resembles most."""
        return [self.boundaries[at] for at in self.cosines.argmax(axis=1).tolist()]

    @property
    def best_cosine(self) -> list[float]:
        """Per tap, the cosine there."""
        found: list[float] = self.cosines.max(axis=1).tolist()
        return found

    @property
    def declared(self) -> list[int]:
        """Per tap, the boundary it should be."""
        return [match.declared for match in self.matches]

    @property
    def declared_cosine(self) -> list[float | None]:
        """Per tap, the cosine with the boundary it should be; None where the reference lacks it."""
        return [
            float(self.cosines[at, self.boundaries.index(b)]) if b in self.references else None
            for at, b in enumerate(self.declared)
        ]

    @cached_property
    def closeness(self) -> tuple[float, float, float]:
        """How well the request fits: rows that match, rows of the same length at their boundary, mean cosine.

        A rotation leaves the length alone, so it finds the request where no direction can.
        """
        same, long = [], []
        for match in self.matches:
            likeness = np.stack([self._row_cosines(match, b) for b in self.boundaries])
            same.append(float((likeness.max(axis=0) >= 0.99).mean()))
            if match.declared in self.references:
                _, rms, _ = self.reference_rows(match, match.declared)
                with np.errstate(invalid="ignore", divide="ignore"):
                    long.append(float((np.abs(match.rms / rms - 1) < 0.01).mean()))
        return (
            round(float(np.mean(same)), 2),
            round(float(np.mean(long or [0.0])), 2),
            float(np.mean(self.best_cosine)),
        )

    def _row_cosines(self, match: Match, boundary: int) -> Array:
        rows, _, there = self.reference_rows(match, boundary)
        return np.where(there, cosine(match.rows, np.nan_to_num(rows)), -1.0)

    @property
    def num_rows(self) -> int:
        """Rows compared."""
        return sum(len(match.positions) for match in self.matches)


def cosine(a: Array, b: Array) -> Array:
    """Cosine of each pair of rows; -1..1, 0 for a row of zeros."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    dots = (a * b).sum(axis=1)
    found: Array = np.divide(dots, norms, out=np.zeros(len(dots)), where=norms > 0)
    return found


def compare(facts: Facts) -> Comparison | None:
    """Tap rows beside the reference; None where either is missing or nothing can be matched."""
    references = _tables(facts.references)
    if not references:
        return None
    tally = facts.of(TapTally)
    best: Comparison | None = None
    for rows in tally.rows.values():
        matches = [
            m
            for key, own in sorted(rows.items())
            if (m := _match(facts.run, key, tally.by_index, own, references))
        ]
        if not matches:
            continue
        found = Comparison(matches, references)
        if best is None or found.closeness > best.closeness:
            best = found
    return best


def _tables(references: Sequence[Reference]) -> dict[int, dict[int, tuple[float, Array]]]:
    tables: dict[int, dict[int, tuple[float, Array]]] = {}
    for reference in references:
        table = tables.setdefault(reference.boundary, {})
        for row in reference.rows:
            if row is None or row.position is None or row.projections is None:
                continue
            if len(row.projections) == NUM_PROJECTIONS:
                rms = np.nan if row.rms is None else float(row.rms)
                table[row.position] = (rms, np.asarray(row.projections, np.float64))
    return {boundary: table for boundary, table in tables.items() if table}


def _match(
    run: Run,
    key: int,
    by_index: bool,
    rows: TapRows,
    references: Mapping[int, Mapping[int, tuple[float, Array]]],
) -> Match | None:
    declared = declared_boundary(run, key, by_index)
    known = {position for table in references.values() for position in table}
    at = [
        i
        for i, position in enumerate(rows.positions)
        if position in known and np.isfinite(rows.projections[i]).all()
    ]
    if declared is None or not at:
        return None
    return Match(
        key=key,
        declared=declared,
        positions=np.array([rows.positions[i] for i in at]),
        rows=np.array([rows.projections[i] for i in at]),
        rms=np.array([rows.rms[i] for i in at]),
        is_prefill=np.array([rows.is_prefill[i] for i in at]),
        steps=[rows.steps[i] for i in at],
    )


def declared_boundaries(run: Run) -> list[int] | None:
    """The boundaries the draft was made for: declared ids by their numbering, else what was captured."""
    taps = run.taps
    if taps is None:
        return None
    if taps.declared is not None and (taps.numbering in ("input", "output") or taps.boundaries is None):
        return [layer + (taps.numbering == "output") for layer in taps.declared]
    return None if taps.boundaries is None else list(taps.boundaries)


def declared_boundary(run: Run, key: int, by_index: bool) -> int | None:
    """The boundary a tap is declared to be.

    A tap that names its boundary is taken at its word, unless the run declares another for its place.
    """
    declared = declared_boundaries(run)
    if by_index:
        return declared[key] if declared is not None and 0 <= key < len(declared) else None
    captured = None if run.taps is None else run.taps.boundaries
    if declared is not None and captured is not None and len(captured) == len(declared) and key in captured:
        return declared[list(captured).index(key)]
    return key
