"""What a probe's table says: which way of running a draft explains a recorded run, or beats the usual one.

Counts in, a row's number out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spectrace.analysis.intervals import Share

EXPLAINS = 0.5
"""Share of a recording's tokens that a row must propose too; where a fault is replayed it is nearly all."""

SAME_STATES = 0.02
"""Relative distance up to which states are the same in another precision; bfloat16 leaves about .005."""


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One way to run the draft."""

    name: str
    right: tuple[Share, ...]
    """Per depth, how often its token is the target's."""
    same: Share
    """How many of a recording's tokens it proposes too; without a trial where there is no recording."""
    apart: float | None = None
    """Mean difference in log q of those tokens, where the recording has it."""


def best_row(rows: Sequence[ProbeRow]) -> int | None:
    """The row that explains a recording, or without one the row that is best at the first depth.

    Of rows that propose the same tokens of a recording, the one with the nearest log q explains it. Without a
    recording the first row, the usual way, stays best unless another's whole interval lies above it.

    Args:
        rows: the usual way first.

    Returns:
        A row's number; None when no row explains the recording.

    >>> usual = ProbeRow("usual", (Share(5, 10),), Share(0, 0))
    >>> best_row([usual, ProbeRow("lucky", (Share(6, 10),), Share(0, 0))])
    0
    >>> best_row([usual, ProbeRow("right", (Share(10, 10),), Share(0, 0))])
    1
    """
    if rows[0].same.trials:

        def likeness(number: int) -> tuple[int, float, int]:
            row = rows[number]
            return row.same.successes, -(row.apart or 0.0), -number

        best = max(range(len(rows)), key=likeness)
        share = rows[best].same
        return best if share.successes >= EXPLAINS * share.trials else None
    best = max(range(len(rows)), key=lambda number: (rows[number].right[0].successes, -number))
    return best if rows[best].right[0].low > (rows[0].right[0].value or 0.0) else 0
