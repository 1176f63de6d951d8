"""Does acceptance fall steadily as a text grows, as rotary scaling that is a little wrong makes it?

A straight line through acceptance against the committed length, within requests: prompts of different length
are different tasks. A limit is a step and no slope; see window.py. A hint, nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import MIN_PROMPTS, MIN_STEPS, PerRequest
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.diagnosis.window import judge_length
from spectrace.format.records import Run

_FALL = -0.02
"""Change of the share accepted per 1,000 tokens that is worth a word (upper end of the interval)."""
_SPREAD = 0.25
"""Standard deviation of the committed length within requests, in thousands, below which no line is drawn."""
_Z = 3.29
ID = "positions/falls-with-length"


class SlopeTally:
    """Sums of the line, per request: x is the committed length in thousands, y the share accepted."""

    FIELDS = ("request", "position", "proposal_ids", "num_accepted", "flags", "emitted_ids", "parents")

    def __init__(self, run: Run) -> None:
        self.sums = [PerRequest(np.float64) for _ in range(6)]
        """n, x, y, x x, x y, y y."""

    def add(self, block: Block) -> None:
        """Counts a block."""
        real = block.is_real
        x = np.maximum(block.positions, 0) / 1000.0
        y = block.accepted / np.maximum(block.drafted, 1)
        for sums, values in zip(self.sums, (np.ones(len(x)), x, y, x * x, x * y, y * y)):
            sums.add(block, np.where(real, values, 0.0))


class Line(NamedTuple):
    """A straight line within requests."""

    slope: float
    """Change of the share accepted per 1,000 tokens."""
    half_width: float
    """Half of its interval."""
    spread: float
    """Standard deviation of the committed length within requests, in thousands."""
    steps: int
    requests: int


def fitted(tally: SlopeTally) -> Line | None:
    """Least squares with an intercept for each request; None where there is nothing to fit.

    Source: the within estimator of panel data, errors of one step taken as independent.
    """
    n, x, y, xx, xy, yy = (sums.values for sums in tally.sums)
    used = n > 1
    n, x, y, xx, xy, yy = (values[used] for values in (n, x, y, xx, xy, yy))
    s_xx, s_xy, s_yy = (float((a - b / n).sum()) for a, b in ((xx, x * x), (xy, x * y), (yy, y * y)))
    steps, requests = int(n.sum()), len(n)
    free = steps - requests - 1
    if free < 1 or s_xx <= 1e-12:
        return None
    slope = s_xy / s_xx
    error = math.sqrt(max(s_yy - slope * s_xy, 0.0) / free / s_xx)
    return Line(slope, _Z * error, math.sqrt(s_xx / steps), steps, requests)


def judge(facts: Facts) -> Iterator[Outcome]:
    """A steady fall within the texts."""
    if facts.run.method in ("ngram", "suffix"):
        return
    unknown = [*facts.unavailable(ID, "step")]
    if unknown:
        yield from unknown
        return
    line = fitted(facts.of(SlopeTally))
    if line is None or line.spread < _SPREAD or line.steps < MIN_STEPS or line.requests < MIN_PROMPTS:
        yield NotChecked(
            id=ID,
            reason="the texts are too short or too few for a trend",
            how=f"record {MIN_STEPS} proposals of {MIN_PROMPTS} prompts, each over some thousand tokens",
        )
        return
    evidence = {
        "slope_per_1k_tokens": line.slope,
        "at_most": line.slope + line.half_width,
        "steps": line.steps,
        "requests": line.requests,
    }
    if any(isinstance(answer, Finding) for answer in judge_length(facts)):
        yield NotChecked(id=ID, reason="window/length says already that longer contexts are accepted less")
        return
    if line.slope + line.half_width >= _FALL:
        yield Cleared(id=ID, summary="acceptance does not fall as a text grows", evidence=evidence)
        return
    yield Finding(
        id="positions/rotary-config",
        strength=Strength.HINT,
        summary=f"Within each text acceptance falls by {-line.slope:.3f} per 1,000 tokens: positions or "
        "rotary scaling of the draft may be a little wrong.",
        advice="Compare the draft's rotary settings with its checkpoint's, and its positions with the "
        "target's; a limit would be a step, not a slope.",
        evidence=evidence,
    )
