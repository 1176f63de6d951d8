"""Rows of a verified batch -> arrays for the writer, as far as engines agree: outcomes, states, stretches.

numpy only; no loop over positions. Refuses to touch a tensor or to decide what was committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectrace_transformers.reduction import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """Rows of states that the draft is fed, of the forward before."""

    counts: Array
    """[B] rows of each request."""
    shape: tuple[int, int]
    dtype: str


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What one step of a request came to."""

    proposal: list[int]
    """[K] ids in the target's vocabulary."""
    emitted: list[int]
    num_reported: int
    """Accepted, as the engine says."""
    is_greedy: bool
    is_prefill: bool
    stop: str | None

    @property
    def num_drafted(self) -> int:
        """K."""
        return len(self.proposal)

    @property
    def num_accepted(self) -> int:
        """Draft tokens among what was committed."""
        raise NotImplementedError

    @property
    def is_all_accepted(self) -> bool:
        """Whether no token of the proposal was left that could have been accepted."""
        raise NotImplementedError


def outcomes(rows: Sequence[Outcome], *, is_simulated: bool) -> dict[str, Any]:
    """What was accepted and committed, and why it ended there.

    Args:
        rows: of a batch; all of them ended, or none.
        is_simulated: acceptance is drawn, not decided.
    """
    accepted = [row.num_accepted for row in rows]
    finals, flags = [], []
    for row, number in zip(rows, accepted):
        own = ["prefill"] if row.is_prefill else []
        if not row.num_drafted:
            finals.append("none")
        elif number == len(row.emitted):
            finals.append("draft")
            own.append("truncated")
        elif row.is_all_accepted:
            finals.append("bonus")
        else:
            finals.append("corrected" if row.is_greedy else "recovered")
        if is_simulated and row.num_drafted:
            own.append("simulated")
        flags.append(own)
    fields: dict[str, Any] = {
        "num_accepted": np.array(accepted),
        "num_accepted_reported": np.array([row.num_reported for row in rows]),
        "emitted_ids": (flat([row.emitted for row in rows]), [len(row.emitted) for row in rows]),
        "final_kind": finals,
    }
    if any(flags):
        fields["flags"] = ([flag for own in flags for flag in own], [len(own) for own in flags])
    if rows[0].stop is not None:
        fields["stop"] = [row.stop for row in rows]
    return fields


def tap_columns(
    taps: Taps, arrays: Mapping[str, Array], at: Array, boundaries: Sequence[int] | None
) -> dict[str, Any]:
    """Fingerprints of the states that the draft is fed.

    Args:
        taps: what the arrays are.
        arrays: [A, rows of all requests, ..] of each boundary.
        at: [B] rows of the batch.
        boundaries: [A] k of B(k); None where that is unknown.
    """
    num_taps, total = arrays["tap_rms"].shape
    first = (np.cumsum(taps.counts) - taps.counts)[at]  # [B]
    counts = taps.counts[at]
    offsets = np.arange(num_taps) * total  # [A]
    rows = places((first[:, None] + offsets).ravel(), np.repeat(counts, num_taps))
    lengths = counts * num_taps
    which = rows // total
    named = boundaries is not None and len(boundaries) == num_taps
    columns: dict[str, Any] = {
        "boundary" if named else "index": np.array(boundaries)[which] if named else which,
        "position": arrays["tap_positions"][rows % total],
        "shape": np.broadcast_to(np.array(taps.shape), (len(rows), 2)),
        "dtype": [taps.dtype] * len(rows),
        "rms": arrays["tap_rms"].reshape(-1)[rows],
        "nonfinite": arrays["tap_nonfinite"].reshape(-1)[rows].astype(np.int64),
        "projections": arrays["tap_projections"].reshape(num_taps * total, -1)[rows],
    }
    return {f"taps.{name}": (column, lengths) for name, column in columns.items()}


def places(starts: Array, lengths: Array) -> Array:
    """The indices start, start + 1, .. of each stretch, one stretch after the other.

    >>> places(np.array([0, 10]), np.array([2, 3])).tolist()
    [0, 1, 10, 11, 12]
    """
    before = np.cumsum(lengths) - lengths
    found: Array = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    return found


def flat(lists: Sequence[Sequence[int]]) -> Array:
    """The numbers of all lists, one list after the other."""
    return np.array([item for values in lists for item in values], np.int64)
