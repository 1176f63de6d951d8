"""Does acceptance fall over the uptime of a server? Ten-minute windows, Mann and Kendall's trend test."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.intervals import Mean
from spectrace.format.records import Run

_WINDOW_NS = 600 * 1_000_000_000
_MAX_WINDOWS = 4096
_MIN_STEPS = 50
_MIN_WINDOWS = 5
_FALL = 0.93
_P = 0.01


class UptimeTally:
    """Acceptance by window of time since the recording began."""

    FIELDS = ("started_ns", "proposal_ids", "num_accepted", "flags")

    def __init__(self, run: Run) -> None:
        self.steps = np.zeros(_MAX_WINDOWS, np.int64)
        self.accepted = np.zeros(_MAX_WINDOWS, np.int64)
        self.squares = np.zeros(_MAX_WINDOWS, np.int64)

    def add(self, block: Block) -> None:
        """Counts a block."""
        started = block.scalar("started_ns")
        if started is None:
            return
        rows = started.known & block.is_real & (started.values >= 0)
        window = np.minimum(started.values[rows] // _WINDOW_NS, _MAX_WINDOWS - 1)
        own = block.accepted[rows]
        for total, values in ((self.steps, None), (self.accepted, own), (self.squares, own * own)):
            total += np.bincount(window, weights=values, minlength=_MAX_WINDOWS).astype(np.int64)

    def windows(self) -> list[Mean]:
        """Accept length of each window with steps enough."""
        return [
            Mean(n, a + n, s + 2 * a + n)
            for n, a, s in zip(self.steps.tolist(), self.accepted.tolist(), self.squares.tolist())
            if n >= _MIN_STEPS
        ]


def falling_p(values: Sequence[float]) -> float:
    """One-sided p of a falling trend. Source: Mann 1945, Kendall 1975, normal approximation, no ties.

    >>> round(falling_p([5, 4, 3, 2, 1, 0]), 4), round(falling_p([1, 2, 3, 4, 5, 6]), 2)
    (0.0043, 1.0)
    """
    n = len(values)
    array = np.asarray(values, np.float64)
    score = float(sum(np.sign(array[i + 1 :] - array[i]).sum() for i in range(n - 1)))
    spread = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return 0.5 * math.erfc(-(score + 1) / spread / math.sqrt(2)) if spread else 1.0


def judge(facts: Facts) -> Iterator[Outcome]:
    """A trend over at least five windows."""
    tally = facts.of(UptimeTally)
    if not tally.steps.any():
        yield facts.not_recorded("drift/over-time", "record when each step started", "started_ns")
        return
    windows = tally.windows()
    if len(windows) < _MIN_WINDOWS:
        yield NotChecked(
            id="drift/over-time",
            reason="shorter than an hour",
            how=f"record {_MIN_WINDOWS} windows of ten minutes",
        )
        return
    values = [window.value or 0.0 for window in windows]
    p, ratio = falling_p(values), values[-1] / values[0]
    evidence = {
        "first_window": windows[0],
        "last_window": windows[-1],
        "ratio": ratio,
        "p": p,
        "windows": len(windows),
    }
    if p < _P and ratio < _FALL and not windows[0].overlaps(windows[-1]):
        yield Finding(
            id="drift/over-time",
            strength=Strength.STRONG if facts.has_prompts else Strength.HINT,
            summary=f"Acceptance falls over the uptime: accept length {values[0]:.2f} at first, "
            f"{values[-1]:.2f} at last.",
            advice="Restart and look whether it comes back; if the mix of prompts changed, compare equal "
            "prompts.",
            evidence=evidence,
        )
    else:
        yield Cleared(
            id="drift/over-time", summary=f"no fall over {len(windows)} ten-minute windows", evidence=evidence
        )
