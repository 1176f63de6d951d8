"""Do the states belong to the tokens they are said to? Rows beside the reference of their neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.reference import Comparison, Match, compare, cosine
from spectrace.analysis.diagnosis.tap_layer import SAME
from spectrace.analysis.diagnosis.verdict import Finding, Outcome, Strength
from spectrace.format.columns import Array

_SHIFTS = (-2, -1, 1, 2)
_MIN_ROWS = 8
_DIFFERENT = 0.9
"""Mean cosine below which rows are not those of their own tokens."""


def judge(facts: Facts) -> Iterator[Outcome]:
    """Rows that match the reference of the token before or after, and not that of their own."""
    comparison = compare(facts)
    if comparison is None:
        return
    matches = [match for match in comparison.matches if match.declared in comparison.references]
    likeness = {shift: _likeness(comparison, matches, shift) for shift in (0, *_SHIFTS)}
    at_home = likeness[0]
    best = max(_SHIFTS, key=lambda shift: _mean(likeness[shift]))
    if len(likeness[best]) < _MIN_ROWS or _mean(likeness[best]) < SAME or _mean(at_home) >= _DIFFERENT:
        return
    yield Finding(
        id="tap-form/stale-rows",
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
        steps=sorted({step for match in matches for step in match.steps})[:5],
    )


def _likeness(comparison: Comparison, matches: Sequence[Match], shift: int) -> Array:
    """Cosines of rows with the reference of the token so far from their own."""
    mine, theirs = [], []
    for match in matches:
        table = comparison.references[match.declared]
        for (request, position), projections in zip(match.places, match.rows):
            there = table.get((request, position + shift))
            if there is not None:
                mine.append(projections)
                theirs.append(there[1])
    return cosine(np.array(mine), np.array(theirs)) if mine else np.zeros(0)


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else -1.0
