"""Rows of a verified batch -> arrays for the writer, as far as engines agree.

That is times, outcomes, what the target thought, and states. numpy only. Refuses to touch a tensor or to
decide what was committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectrace_serving.clock import Moment
from spectrace_serving.events import Verification
from spectrace_transformers.reduction import Array, log_normaliser


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for the whole run."""

    started_ns: int
    """Monotonic clock at the start of the trace."""
    boundaries: tuple[int, ...] | None
    """k of B(k) of the states that the draft is fed, in their order; None where that is unknown."""
    is_simulated: bool
    """Acceptance is drawn, not decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """Rows of states that the draft is fed, of the forward before."""

    counts: Array
    """[B] rows of each request."""
    shape: tuple[int, int]
    dtype: str


@dataclass(slots=True, kw_only=True)
class Outcome(ABC):
    """One request in a verified batch, and what the step came to."""

    name: str
    number: int
    """Of the step, within its request."""
    at: int
    """Row of the batch."""
    position: int
    prefix_hit_length: int
    proposal: list[int]
    """[K] ids in the target's vocabulary."""
    emitted: list[int]
    num_reported: int
    """Accepted, as the engine says."""
    is_greedy: bool
    is_prefill: bool
    stop: str | None
    num_accepted: int
    """Draft tokens among what was committed."""

    @property
    def num_drafted(self) -> int:
        """K."""
        return len(self.proposal)

    @property
    @abstractmethod
    def is_all_accepted(self) -> bool:
        """Whether no token of the proposal was left that could have been accepted."""

    @property
    @abstractmethod
    def places(self) -> Sequence[int]:
        """Of each committed token, the row whose pick it is: 0 for the root, n + 1 for proposal[n]."""


def scalars(
    rules: Rules,
    event: Verification,
    rows: Sequence[Outcome],
    max_length: int,
    drafting: tuple[Moment, Moment] | None,
    *,
    is_one_round: bool = True,
) -> dict[str, Any]:
    """Fields of one value, besides the outcome.

    Args:
        rules: of the run.
        event: the verification.
        rows: of its batch.
        max_length: longest committed length in the batch.
        drafting: when the proposal behind these rows was begun and done.
        is_one_round: nothing happened between it and the verification.
    """
    count, started = len(rows), event.started
    fields: dict[str, Any] = {
        "request": [row.name for row in rows],
        "step": np.array([row.number for row in rows]),
        "batch_row": np.array([row.at for row in rows]),
        "engine_step": np.full(count, event.engine_step),
        "max_batch_length": np.full(count, max_length),
        "position": np.array([row.position for row in rows]),
        "verify_ns": np.full(count, started.until(event.ended)),
        "logits_kind": ["raw"] * count,
    }
    if drafting is not None:
        fields["draft_ns"] = np.full(count, drafting[0].until(drafting[1]))
        if is_one_round:
            started = drafting[0]
            fields["step_ns"] = np.full(count, started.until(event.ended))
    fields["started_ns"] = np.full(count, started.host_ns - rules.started_ns)
    return fields


def target_picks(arrays: Mapping[str, Array], after: Array, drafted: Array) -> dict[str, Any]:
    """The target's pick at the root and after each draft token.

    Args:
        arrays: per row of logits.
        after: [sum of K + 1] the rows of these.
        drafted: [B] K of each.
    """
    return {"target_ids": (arrays["top_ids"][after, 0], drafted + 1)} if "top_ids" in arrays else {}


def target_columns(
    arrays: Mapping[str, Array],
    rows: Sequence[Outcome],
    drafted: Array,
    *,
    after: Array,
    judged: Array,
    judges: Array,
) -> dict[str, Any]:
    """What the target thought at the root and after each draft token.

    Args:
        arrays: per row of logits, all that is kept of them.
        rows: of the batch.
        drafted: [B] K of each.
        after: [sum of K + 1] rows at the root and after each draft token.
        judged: [sum of K] where "chosen" and "better" say something of each draft token.
        judges: [sum of K] the row whose distribution that is.
    """
    counts = drafted + 1
    starts = np.cumsum(counts) - counts
    norm = log_normaliser(arrays["top"][:, 0], arrays["first"])  # [R]
    top, ids = arrays["top"][after], arrays["top_ids"][after]  # [sum of K + 1, m]
    gaps = top[:, 0] - top[:, 1]
    return {
        "target_ids": (_as_taken(ids[:, 0], gaps, rows, starts), counts),
        "target_logprobs": (arrays["chosen"][judged] - norm[judges], drafted),
        "target_ranks": (arrays["better"][judged].astype(np.int64) + 1, drafted),
        "target_gaps": (gaps, counts),
        "target_top.id": (ids, counts),
        "target_top.logprob": (top - norm[after, None], counts),
        "nonfinite.target_logits": np.add.reduceat(arrays["nonfinite"][after].astype(np.int64), starts),
    }


def _as_taken(picks: Array, gaps: Array, rows: Sequence[Outcome], starts: Array) -> Array:
    """The target's picks; of two equal logits, the one that the engine took."""
    if gaps.all() or not all(row.is_greedy for row in rows):
        return picks
    taken = picks.copy()
    for row, start in zip(rows, starts.tolist()):
        for place, token in zip(row.places, row.emitted):
            taken[start + place] = token
    return np.where(gaps == 0, taken, picks)


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
    rows = spread((first[:, None] + offsets).ravel(), np.repeat(counts, num_taps))
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


def spread(starts: Array, lengths: Array) -> Array:
    """The indices start, start + 1, .. of each stretch, one stretch after the other.

    >>> spread(np.array([0, 10]), np.array([2, 3])).tolist()
    [0, 1, 10, 11, 12]
    """
    before = np.cumsum(lengths) - lengths
    found: Array = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    return found


def flat(lists: Sequence[Sequence[int]]) -> Array:
    """The numbers of all lists, one list after the other."""
    return np.array([item for values in lists for item in values], np.int64)
