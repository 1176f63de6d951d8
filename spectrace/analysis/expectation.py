"""What acceptance should be by each verification rule, from the recorded p and q of the steps themselves.

Sums over trials, so that expectations add up. A trial is a draft token that the target judged; tokens
behind a rejection are none. Reads no trace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from spectrace.format.columns import Array


@dataclass(slots=True)
class Expected:
    """Expected acceptances over independent trials of different probability."""

    trials: int = 0
    total: float = 0.0
    """Sum of the probabilities."""
    variance: float = 0.0
    """Sum of p (1 - p)."""
    observed: int = 0

    def add(self, probabilities: Array, accepted: Array) -> None:
        """Adds trials; those without a number are left out."""
        usable = np.isfinite(probabilities)
        p = np.clip(probabilities[usable], 0.0, 1.0)
        self.trials += len(p)
        self.total += float(p.sum())
        self.variance += float((p * (1 - p)).sum())
        self.observed += int(accepted[usable].sum())

    @property
    def rate(self) -> float | None:
        """Expected share of acceptances."""
        return self.total / self.trials if self.trials else None

    @property
    def observed_rate(self) -> float | None:
        """What was seen in the same trials."""
        return self.observed / self.trials if self.trials else None

    def band(self, z: float) -> tuple[float, float]:
        """Rates that chance explains, z standard deviations each way and half a trial for rounding."""
        if not self.trials:
            return 0.0, 1.0
        half = (z * math.sqrt(self.variance) + 0.5) / self.trials
        return self.total / self.trials - half, self.total / self.trials + half

    def explains(self, rate: float, z: float) -> bool:
        """Whether a rate lies within the band."""
        low, high = self.band(z)
        return low <= rate <= high


def by_full_rule(target_logprobs: Array, draft_logprobs: Array) -> Array:
    """min(1, p / q) for each draft token. Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1.

    >>> by_full_rule(np.log([0.5, 0.2]), np.log([0.25, 0.4])).round(2).tolist()
    [1.0, 0.5]
    """
    with np.errstate(invalid="ignore"):
        ratio: Array = np.exp(np.minimum(target_logprobs - draft_logprobs, 0.0))
    return ratio


def ignoring_q(target_logprobs: Array) -> Array:
    """P of each draft token: what a test that takes q for 1, or compares with a sampled token, accepts."""
    chance: Array = np.exp(np.minimum(target_logprobs, 0.0))
    return chance
