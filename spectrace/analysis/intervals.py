"""Shares with the interval that says how far to trust them.

Wilson's score interval, 95 %: it stays within 0..1 and holds for few trials and for shares near 0. No trace
is read here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


def wilson(successes: float, trials: int, z: float = Z95) -> tuple[float, float]:
    """Interval of a share.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22 (1927).

    Args:
        successes: how often it happened, within 0..trials.
        trials: how often it could have happened.
        z: quantile of the normal distribution.

    Returns:
        Lower and upper end; (0, 1) without any trial.

    >>> [round(end, 3) for end in wilson(150, 200)]
    [0.686, 0.805]
    """
    if trials <= 0:
        return 0.0, 1.0
    share = min(max(successes / trials, 0.0), 1.0)
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True, slots=True)
class Share:
    """A share as counts, so that shares can be added up."""

    successes: int
    trials: int

    @property
    def value(self) -> float | None:
        """The share, None without any trial."""
        return self.successes / self.trials if self.trials else None

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return wilson(self.successes, self.trials)[0]

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return wilson(self.successes, self.trials)[1]

    def overlaps(self, other: Share, z: float = Z95) -> bool:
        """Whether the intervals of the two shares have a point in common."""
        low, high = wilson(self.successes, self.trials, z)
        other_low, other_high = wilson(other.successes, other.trials, z)
        return low <= other_high and other_low <= high

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "successes": self.successes,
            "n": self.trials,
            "share": self.value,
            "low": self.low,
            "high": self.high,
        }

    def __str__(self) -> str:
        if self.value is None:
            return "no step"
        return f"{self.value:.3f} ({self.low:.3f}-{self.high:.3f}), {self.successes:,} of {self.trials:,}"


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean as sums, so that means can be added up."""

    count: int
    total: float
    squares: float
    """Sum of the squared values."""

    @property
    def value(self) -> float | None:
        """The mean, None of nothing."""
        return self.total / self.count if self.count else None

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval by the normal approximation; infinite for fewer than two values."""
        if self.count < 2:
            return math.inf
        variance = max(self.squares - self.total * self.total / self.count, 0.0) / (self.count - 1)
        return Z95 * math.sqrt(variance / self.count)

    def overlaps(self, other: Mean) -> bool:
        """Whether the intervals of the two means have a point in common."""
        if self.value is None or other.value is None:
            return True
        return abs(self.value - other.value) <= self.half_width + other.half_width

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        half = self.half_width if self.value is not None and math.isfinite(self.half_width) else None
        return {
            "mean": self.value,
            "n": self.count,
            "low": None if half is None or self.value is None else self.value - half,
            "high": None if half is None or self.value is None else self.value + half,
        }

    def __str__(self) -> str:
        if self.value is None:
            return "no step"
        return f"{self.value:.2f} +-{self.half_width:.2f}, {self.count:,} steps"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two totals over steps, as sums, so that ratios can be added up.

    Tokens of one step are accepted together, so they are no trials of their own: the interval comes from the
    spread between the steps.
    """

    count: int
    """Steps."""
    part: float
    whole: float
    squares: tuple[float, float, float]
    """Sums over the steps of part squared, part times whole, whole squared."""

    @property
    def value(self) -> float | None:
        """The ratio, None of nothing."""
        return self.part / self.whole if self.whole else None

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval; infinite for fewer than two steps.

        Source: W. G. Cochran, "Sampling Techniques" (1977), section 6.4, the variance of a ratio.
        """
        ratio = self.value
        if ratio is None or self.count < 2:
            return math.inf
        own, both, whole = self.squares
        spread = max(own - 2 * ratio * both + ratio * ratio * whole, 0.0) * self.count / (self.count - 1)
        return Z95 * math.sqrt(spread) / self.whole


@dataclass(frozen=True, slots=True)
class Change:
    """A difference of two measured numbers, second less first, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def is_shown(self) -> bool:
        """Whether so many steps show a difference at all: the interval leaves zero out."""
        return not self.low <= 0 <= self.high


def change_of_share(one: Share, other: Share) -> Change | None:
    """Difference of two shares; None where one has no trial.

    Source: R. G. Newcombe, "Interval estimation for the difference between independent proportions",
    Statistics in Medicine 17 (1998), method 10.

    >>> change = change_of_share(Share(48, 80), Share(56, 70))
    >>> [round(end, 4) for end in (change.value, change.low, change.high)]
    [0.2, 0.0524, 0.3339]
    """
    if one.value is None or other.value is None:
        return None
    down = math.hypot(one.high - one.value, other.value - other.low)
    up = math.hypot(one.value - one.low, other.high - other.value)
    value = other.value - one.value
    return Change(value, value - down, value + up)


def change_of_mean(one: Mean | Ratio, other: Mean | Ratio) -> Change | None:
    """Difference of two means or ratios by the normal approximation; None where one is of nothing.

    >>> change_of_mean(Mean(2, 4, 10), Mean(2, 4, 10)).value
    0.0
    """
    if one.value is None or other.value is None:
        return None
    value, half = other.value - one.value, math.hypot(one.half_width, other.half_width)
    return Change(value, value - half, value + half)
