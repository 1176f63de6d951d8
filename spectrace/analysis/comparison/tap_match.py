"""Are the drafts of both runs fed the same states? Each tap beside those of the other trace, by fingerprint.

Rows are compared at the same token of the same request, before the texts part. Where the other trace holds a
reference forward, its boundaries are looked at too. Bounded: the taps of the first requests and steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spectrace.analysis.diagnosis.control_texts import first_names
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.fingerprints import TapRows, TapTally
from spectrace.analysis.diagnosis.reference import compare_taps, cosine
from spectrace.analysis.diagnosis.tap_layer import SAME, is_farther
from spectrace.format.columns import Array
from spectrace.format.counts import Counts

if TYPE_CHECKING:
    from spectrace.format.reader import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class TapMatch:
    """One tap of one trace and what of the other resembles it most."""

    side: str
    """A | B: whose tap."""
    tap: int
    """k of B(k) as its trace calls it, or its place among the taps where the trace names no boundary."""
    by_index: bool
    """``tap`` is a place, not a boundary."""
    n: int
    """Tokens compared."""
    same_name_cosine: float | None
    """Cosine with the other trace's tap of the same name; None where there is none."""
    best: int
    """The other trace's tap or boundary that resembles it most."""
    best_in: str
    """tap | reference."""
    cosine: float
    """Mean cosine of the fingerprints there."""
    rms_ratio: float | None
    """Its RMS as a share of that of ``best``."""

    @property
    def is_same(self) -> bool:
        """The other trace's tap of that name is the same state, of the same size."""
        return self.best_in == "tap" and self.best == self.tap and self.is_match

    @property
    def is_match(self) -> bool:
        """It is the same state as ``best``, of the same size."""
        return self.cosine >= SAME and (self.rms_ratio is None or abs(self.rms_ratio - 1) < 1 - SAME)

    @property
    def is_scaled(self) -> bool:
        """It points where ``best`` does, but is not of its size."""
        return self.cosine >= SAME and not self.is_match

    @property
    def shift(self) -> int | None:
        """Layers from the name of this tap to the boundary of the other trace that it is."""
        return None if self.by_index or not self.is_match else self.best - self.tap

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "is_same": self.is_same, "is_match": self.is_match, "shift": self.shift}


@dataclass(frozen=True, slots=True)
class _Candidate:
    key: int
    source: str
    cosine: float
    rms_ratio: float | None
    n: int


Requests = Mapping[int, tuple[int, int]]
"""Request of the one trace -> that of the other, and the token from which their texts differ."""


def match_taps(
    traces: tuple[Trace, Trace], tallies: tuple[TapTally, TapTally], requests: Requests
) -> list[TapMatch]:
    """Taps of A beside those of B, then the other way round.

    Args:
        traces: A and B.
        tallies: their tap rows.
        requests: of A -> of B, with the first token that differs.
    """
    if tallies[0].by_index != tallies[1].by_index:
        return []
    back = {theirs: (mine, fork) for mine, (theirs, fork) in requests.items()}
    return [
        *_matches("A", traces, tallies, requests),
        *_matches("B", (traces[1], traces[0]), (tallies[1], tallies[0]), back),
    ]


def _matches(
    side: str, traces: tuple[Trace, Trace], tallies: tuple[TapTally, TapTally], requests: Requests
) -> Iterator[TapMatch]:
    own, other = tallies
    keys = sorted({key for rows in own.rows.values() for key in rows})
    others = sorted({key for rows in other.rows.values() for key in rows})
    references = _in_reference(traces[0], traces[1], own, requests)
    for key in keys:
        found = [c for o in others if (c := _beside(own, other, key, o, requests)) is not None]
        named = next((c for c in found if c.key == key), None)
        found += references.get(key, [])
        if not found:
            continue
        best = max(found, key=lambda c: (round(c.cosine, 6), c.source == "tap"))
        if named is not None and not is_farther(named.cosine, best.cosine):
            best = named
        yield TapMatch(
            side=side,
            tap=key,
            by_index=own.by_index,
            n=best.n,
            same_name_cosine=None if named is None else named.cosine,
            best=best.key,
            best_in=best.source,
            cosine=best.cosine,
            rms_ratio=best.rms_ratio,
        )


def _beside(
    own: TapTally, other: TapTally, key: int, other_key: int, requests: Requests
) -> _Candidate | None:
    """Two taps at the same tokens."""
    mine, theirs = [], []
    for request, (partner, fork) in requests.items():
        rows, others = own.rows.get(request, {}).get(key), other.rows.get(partner, {}).get(other_key)
        if rows is None or others is None:
            continue
        at, other_at = _same_tokens(rows, others, fork)
        mine += [(rows.projections[i], rows.rms[i]) for i in at]
        theirs += [(others.projections[i], others.rms[i]) for i in other_at]
    return _candidate(other_key, "tap", mine, theirs)


def _same_tokens(rows: TapRows, others: TapRows, fork: int) -> tuple[list[int], list[int]]:
    """Indices of rows of the same token, before the texts part; of a token verified again, the last row."""
    place = {position: at for at, position in enumerate(rows.positions) if position < fork}
    other = {position: at for at, position in enumerate(others.positions)}
    common = sorted(place.keys() & other.keys())
    return [place[p] for p in common], [other[p] for p in common]


Row = tuple[Array, float]


def _candidate(key: int, source: str, mine: Sequence[Row], theirs: Sequence[Row]) -> _Candidate | None:
    if not mine:
        return None
    a, b = (np.array([row for row, _ in rows], np.float64) for rows in (mine, theirs))
    rms = np.array([[r for _, r in rows] for rows in (mine, theirs)], np.float64)
    usable = np.isfinite(a).all(axis=1) & np.isfinite(b).all(axis=1)
    if not usable.any():
        return None
    likeness = float(np.mean(np.clip(cosine(a[usable], b[usable]), -1, 1)))
    if not np.isfinite(likeness):
        return None
    return _Candidate(key, source, likeness, _ratio(rms[:, usable]), int(usable.sum()))


def _ratio(rms: Array) -> float | None:
    """Median of the first row over the second."""
    sound = np.isfinite(rms).all(axis=0) & (rms > 0).all(axis=0)
    return float(np.median(rms[0, sound] / rms[1, sound])) if sound.any() else None


def _in_reference(
    trace: Trace, other: Trace, tally: TapTally, requests: Requests
) -> dict[int, list[_Candidate]]:
    """Per tap, the boundaries of the other trace's reference forward."""
    references = other.references
    if not references or tally.by_index:
        return {}
    names = first_names(other)
    partners = {mine: names[theirs] for mine, (theirs, _) in requests.items() if theirs in names}
    facts = Facts(
        trace.run,
        trace.run_mapping,
        Counts(),
        0,
        0,
        references,
        tallies={TapTally: tally},
        request_names=lambda numbers: {number: partners.get(number, "") for number in numbers},
    )
    compared = compare_taps(facts)
    if compared is None:
        return {}
    found: dict[int, list[_Candidate]] = {}
    for match in compared.matches:
        for boundary in compared.boundaries:
            rows, rms, there = compared.reference_rows(match, boundary)
            mine = [(match.rows[i], float(match.rms[i])) for i in np.flatnonzero(there)]
            theirs = [(rows[i], float(rms[i])) for i in np.flatnonzero(there)]
            candidate = _candidate(boundary, "reference", mine, theirs)
            if candidate is not None:
                found.setdefault(match.key, []).append(candidate)
    return found
