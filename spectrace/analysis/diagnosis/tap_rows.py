"""Do the states belong to the tokens they are said to? Rows beside the reference of their neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.fingerprints import TapTally
from spectrace.analysis.diagnosis.reference import Match, TapComparison, compare_taps, cosine
from spectrace.analysis.diagnosis.tap_layer import SAME
from spectrace.analysis.diagnosis.verdict import Finding, Outcome, Strength

_SHIFTS = (-2, -1, 1, 2)
_MIN_ROWS = 8
_DIFFERENT = 0.9
"""Mean cosine below which rows are not those of their own tokens."""


def judge(facts: Facts) -> Iterator[Outcome]:
    """Rows that match the reference of the token before or after, and not that of their own."""
    comparison = compare_taps(facts)
    if comparison is None:
        return
    matches = [match for match in comparison.matches if match.declared in comparison.references]
    tally = facts.of(TapTally)
    likeness = {
        shift: [c for match in matches for c in _likeness(tally, comparison, match, shift)]
        for shift in (0, *_SHIFTS)
    }
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
            "rows_compared": len(likeness[best]),
        },
        steps=sorted({step for match in matches for step in match.steps})[:5],
    )


def _likeness(tally: TapTally, comparison: TapComparison, match: Match, shift: int) -> list[float]:
    """Cosines of a tap's rows with the reference of the token so far from their own.

    Of all its rows: a reference has few tokens, and seldom two in a row.
    """
    table = comparison.references[match.declared]
    mine, theirs = [], []
    for request in {request for request, _ in match.places}:
        rows = tally.rows[request][match.key]
        for position, projections in zip(rows.positions, rows.projections):
            there = table.get((request, position + shift))
            if there is not None and np.isfinite(projections).all():
                mine.append(projections)
                theirs.append(there[1])
    return cosine(np.array(mine), np.array(theirs)).tolist() if mine else []


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else -1.0
