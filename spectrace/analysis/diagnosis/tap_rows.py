"""Do the hidden states belong to the tokens they are said to? Rows beside their neighbours' reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.fingerprints import TapRows, TapTally
from spectrace.analysis.diagnosis.reference import cosine, declared_boundary
from spectrace.analysis.diagnosis.tap_layer import SAME
from spectrace.analysis.diagnosis.verdict import Finding, Outcome, Strength
from spectrace.format.columns import Array
from spectrace.format.projections import NUM_PROJECTIONS
from spectrace.format.records import Reference

_SHIFTS = (-2, -1, 1, 2)
_MIN_ROWS = 8
_DIFFERENT = 0.9
"""Mean cosine below which rows are not those of their own tokens."""

Prints = Mapping[int, Mapping[int, Array]]
"""Boundary -> index of the token -> projections."""


def judge(facts: Facts) -> Iterator[Outcome]:
    """Rows that match the reference of the token before or after, and not that of their own."""
    prints = reference_prints(facts.references)
    tally = facts.of(TapTally)
    for taps in tally.rows.values():
        own = [
            (declared_boundary(facts.run, key, tally.by_index), rows) for key, rows in sorted(taps.items())
        ]
        pairs = [(prints[k], rows) for k, rows in own if k is not None and k in prints]
        likeness = {shift: _likeness(pairs, shift) for shift in (0, *_SHIFTS)}
        at_home = likeness[0]
        best = max(_SHIFTS, key=lambda shift: _mean(likeness[shift]))
        if len(likeness[best]) < _MIN_ROWS or _mean(likeness[best]) < SAME or _mean(at_home) >= _DIFFERENT:
            continue
        yield Finding(
            id="tap-form/row-shift",
            strength=Strength.CERTAIN,
            summary=f"The states are those of the token {abs(best)} {'before' if best < 0 else 'after'} the "
            "one they are fed with.",
            advice="Check how rows of the state buffer are gathered: the state at P goes with token P + 1.",
            evidence={
                "shift": best,
                "cosine_at_shift": _mean(likeness[best]),
                "cosine_at_own_token": _mean(at_home) if len(at_home) else None,
                "n": len(likeness[best]),
            },
            steps=sorted({step for _, rows in pairs for step in rows.steps})[:5],
        )
        return


def reference_prints(references: Sequence[Reference]) -> Prints:
    """The rows of all reference forwards."""
    found: dict[int, dict[int, Array]] = {}
    for reference in references:
        for row in filter(None, reference.rows):
            if row.position is None or row.projections is None or len(row.projections) != NUM_PROJECTIONS:
                continue
            table = found.setdefault(reference.boundary, {})
            table[row.position] = np.asarray(row.projections, np.float64)
    return found


def _likeness(pairs: Sequence[tuple[Mapping[int, Array], TapRows]], shift: int) -> Array:
    """Cosines of rows with the reference of the token so far from their own."""
    mine, theirs = [], []
    for table, rows in pairs:
        for position, projections in zip(rows.positions, rows.projections):
            there = table.get(position + shift)
            if there is not None and np.isfinite(projections).all():
                mine.append(projections)
                theirs.append(there)
    return cosine(np.array(mine), np.array(theirs)) if mine else np.zeros(0)


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else -1.0
