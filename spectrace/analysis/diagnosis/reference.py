"""Tap rows beside those of a reference forward: which boundary is each tap, and how far off?

Rows are matched by request and index of the token. A reference that does not say whose prompt it read, as
older recorders wrote it, is compared with the request that it fits best. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.fingerprints import TapRows, TapTally, possible
from spectrace.format.columns import Array
from spectrace.format.projections import NUM_PROJECTIONS
from spectrace.format.records import Reference, Run

Print: TypeAlias = tuple[float, Array]
"""RMS and projections [32] of one state."""
Place: TypeAlias = tuple[int, int]
"""Number of a request, index of the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Rows of one tap that a reference has too."""

    key: int
    """Place among the run's taps, or boundary, as recorded."""
    declared: int
    """Boundary that the tap is declared to be."""
    places: Sequence[Place]
    """[n]"""
    rows: Array
    """[n, 32]"""
    rms: Array
    """[n]"""
    is_prefill: Array
    """[n] bool"""
    steps: Sequence[int]


class TapComparison:
    """Taps beside what they should have been.

    Args:
        matches: one per tap.
        references: boundary -> place -> what a plain forward gave there.
    """

    def __init__(self, matches: Sequence[Match], references: Mapping[int, Mapping[Place, Print]]) -> None:
        self.matches = list(matches)
        self.references = references

    def reference_rows(self, match: Match, boundary: int) -> tuple[Array, Array, Array]:
        """The reference at a match's places: rows [n, 32], their rms [n], which exist [n]."""
        table = self.references[boundary]
        there = np.array([place in table for place in match.places], bool)
        empty = (np.nan, np.full(NUM_PROJECTIONS, np.nan))
        found = [table.get(place, empty) for place in match.places]
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
        return sum(len(match.places) for match in self.matches)


def cosine(a: Array, b: Array) -> Array:
    """Cosine of each pair of rows; -1..1, 0 for a row of zeros."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    dots = (a * b).sum(axis=1)
    found: Array = np.divide(dots, norms, out=np.zeros(len(dots)), where=norms > 0)
    return found


def compare_taps(facts: Facts) -> TapComparison | None:
    """Tap rows beside the reference; None where either is missing or nothing can be matched."""
    prints = _by_request(facts.references)
    requests = facts.of(TapTally).rows
    names = facts.request_names(requests)
    found = _compared(facts, {number: prints.get(name, {}) for number, name in names.items()})
    if found is not None or None not in prints:
        return found
    fits = (_compared(facts, {number: prints[None]}) for number in requests)
    return max((fit for fit in fits if fit is not None), key=lambda fit: fit.closeness, default=None)


def _by_request(references: Sequence[Reference]) -> dict[str | None, dict[int, dict[int, Print]]]:
    """Name of the request, or None -> boundary -> index of the token -> what was there."""
    found: dict[str | None, dict[int, dict[int, Print]]] = {}
    for reference in references:
        for row in filter(None, reference.rows):  # a row of the wrong type is loaded as None
            if row.position is None or row.projections is None or len(row.projections) != NUM_PROJECTIONS:
                continue
            values = possible(np.asarray(row.projections, np.float64))
            rms = np.nan if row.rms is None else float(possible(np.asarray(row.rms, np.float64)))
            if not np.isfinite(values).all():
                continue
            table = found.setdefault(reference.request, {}).setdefault(reference.boundary, {})
            table[row.position] = (rms, values)
    return found


def _compared(facts: Facts, prints: Mapping[int, Mapping[int, Mapping[int, Print]]]) -> TapComparison | None:
    """The taps of some requests beside what was read of their prompts.

    Args:
        facts: the taps.
        prints: number of the request -> boundary -> index of the token -> what was there.
    """
    references: dict[int, dict[Place, Print]] = {}
    for number, tables in prints.items():
        for boundary, table in tables.items():
            places = references.setdefault(boundary, {})
            places.update(((number, position), print_) for position, print_ in table.items())
    known = {place for table in references.values() for place in table}
    tally = facts.of(TapTally)
    keys = sorted({key for number in prints for key in tally.rows[number]})
    rows = {key: {n: tally.rows[n][key] for n in prints if key in tally.rows[n]} for key in keys}
    found = [_match(facts.run, key, tally.by_index, rows[key], known) for key in keys]
    matches = [match for match in found if match is not None]
    return TapComparison(matches, references) if matches else None


def _match(
    run: Run, key: int, by_index: bool, rows: Mapping[int, TapRows], known: Collection[Place]
) -> Match | None:
    """The rows of one tap, by request, that a reference has too."""
    declared = declared_boundary(run, key, by_index)
    at = [
        (number, i)
        for number, own in rows.items()
        for i, position in enumerate(own.positions)
        if (number, position) in known and np.isfinite(own.projections[i]).all()
    ]
    if declared is None or not at:
        return None
    return Match(
        key=key,
        declared=declared,
        places=[(n, rows[n].positions[i]) for n, i in at],
        rows=np.array([rows[n].projections[i] for n, i in at]),
        rms=np.array([rows[n].rms[i] for n, i in at]),
        is_prefill=np.array([rows[n].is_prefill[i] for n, i in at]),
        steps=[rows[n].steps[i] for n, i in at],
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
