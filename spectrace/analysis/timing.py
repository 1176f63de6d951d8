"""Where the time of a step goes, and what speculation gains over none.

Takes `Counts` and makes means from sums; only steps with a proposal are timed there. Reads no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spectrace.analysis.acceptance import emitted_per_proposal
from spectrace.format.counts import Counts

PHASES = ("draft_ns", "verify_ns", "step_ns")
"""The times a step may carry, in the order in which they are shown."""


def mean_ns(counts: Counts, phase: str) -> float | None:
    """Mean nanoseconds of one phase per proposal that has this time.

    Args:
        counts: of one or more requests.
        phase: one of `PHASES`.

    Returns:
        Nanoseconds; None when no step has the time.

    >>> mean_ns(Counts(timed={"draft_ns": [4, 10_000]}), "draft_ns")
    2500.0
    """
    steps, total = _timed(counts, phase)
    return total / steps if steps else None


def token_ns(counts: Counts) -> float | None:
    """Mean nanoseconds per committed token: mean step time / tokens committed per proposal.

    >>> token_ns(Counts(proposals=2, emitted_by_proposals=6, timed={"step_ns": [2, 30_000]}))
    5000.0
    """
    step, emitted = mean_ns(counts, "step_ns"), emitted_per_proposal(counts)
    return step / emitted if step is not None and emitted else None


def speedup(counts: Counts, baseline: Mapping[str, Any] | None) -> float | None:
    """How many times faster a token comes than with no speculation: baseline / `token_ns`.

    Args:
        counts: of the whole run.
        baseline: the run's ``baseline``; its ``token_ns`` is nanoseconds per token without speculation.

    >>> counts = Counts(proposals=2, emitted_by_proposals=6, timed={"step_ns": [2, 30_000]})
    >>> speedup(counts, {"token_ns": 10_000})
    2.0
    """
    plain, ours = (baseline or {}).get("token_ns"), token_ns(counts)
    if isinstance(plain, bool) or not isinstance(plain, (int, float)) or not ours:
        return None
    return plain / ours


def _timed(counts: Counts, phase: str) -> tuple[int, int]:
    """Steps that have the time and their nanoseconds in all; zeros for what is not such a pair."""
    pair = counts.timed.get(phase, [])
    return (pair[0], pair[1]) if len(pair) == 2 else (0, 0)
