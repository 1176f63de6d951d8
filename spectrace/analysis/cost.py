"""What speculation costs and gains at each number of draft tokens, from recorded times alone.

break-even accept length = time of a step / time per token without speculation. Times between recorded
numbers of draft tokens are interpolated, never extrapolated. Sums in, small frozen results out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Sums of times over the timed steps with K draft tokens, nanoseconds."""

    steps: int
    draft_ns: float
    verify_ns: float
    step_ns: float | None = None
    """Whole steps, None where only the phases were timed."""

    @property
    def per_step(self) -> float:
        """Mean time of a step."""
        total = self.draft_ns + self.verify_ns if self.step_ns is None else self.step_ns
        return total / self.steps

    @property
    def other_share(self) -> float:
        """Share of a step that is neither drafting nor verifying."""
        if not self.step_ns:
            return 0.0
        return max(0.0, 1 - (self.draft_ns + self.verify_ns) / self.step_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a number of draft tokens would give."""

    num_draft_tokens: int
    accept_length: float
    break_even: float
    """Accept length at which a step costs what its tokens cost without speculation."""
    is_recorded: bool
    """False where the time is interpolated."""

    @property
    def speedup(self) -> float:
        """Times faster than without speculation."""
        return self.accept_length / self.break_even


def accept_length_at(survival: Sequence[float], num_draft_tokens: int) -> float:
    """Accept length with K draft tokens: 1 + the survival up to K.

    Source: Leviathan et al. 2023 (arXiv 2211.17192), equation 1, with measured survival instead of alpha^j.

    >>> round(accept_length_at([0.7, 0.5, 0.35, 0.22, 0.13], 2), 2)
    2.2
    """
    return 1 + sum(survival[:num_draft_tokens])


def choices(survival: Sequence[float], times: Mapping[int, Times], token_ns: float) -> list[Choice]:
    """Every number of draft tokens between the least and the most that was timed.

    Args:
        survival: [position] share of proposals accepted up to there.
        times: K -> times.
        token_ns: time per token without speculation.

    >>> t = {2: Times(steps=1, draft_ns=12, verify_ns=27), 5: Times(steps=1, draft_ns=30, verify_ns=34)}
    >>> [(c.num_draft_tokens, round(c.speedup, 2)) for c in choices([0.7, 0.5, 0.35, 0.22, 0.13], t, 22)]
    [(2, 1.24), (3, 1.19), (4, 1.09), (5, 1.0)]
    """
    known = sorted(k for k, item in times.items() if k > 0 and item.steps)
    if not known or token_ns <= 0:
        return []
    return [
        Choice(
            num_draft_tokens=k,
            accept_length=accept_length_at(survival, k),
            break_even=_time_at(times, known, k) / token_ns,
            is_recorded=k in times,
        )
        for k in range(known[0], min(known[-1], len(survival)) + 1)
    ]


def _time_at(times: Mapping[int, Times], known: Sequence[int], k: int) -> float:
    if k in times:
        return times[k].per_step
    below = max(other for other in known if other < k)
    above = min(other for other in known if other > k)
    share = (k - below) / (above - below)
    return times[below].per_step * (1 - share) + times[above].per_step * share
