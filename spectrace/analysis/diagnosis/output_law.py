"""Do the committed tokens of a sampled run follow the target's distribution?

The first token that a step commits, accepted or recovered, must be the target's first choice as often as its
probability says, whatever the draft proposed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.format.columns import Array
from spectrace.format.records import Run

_MIN_STEPS = 2000
_BINS = 10


class LawTally:
    """How often the first committed token is the target's first choice, by that choice's probability."""

    FIELDS = ("emitted_ids", "target_top.id", "target_top.logprob", "logits_kind", "proposal_ids", "flags")
    FIRST_STEPS = 100_000
    """Alternatives are wide columns, and this is enough for the test."""

    def __init__(self, run: Run) -> None:
        self.steps = 0
        self.observed, self.expected, self.variance = (np.zeros(_BINS) for _ in range(3))

    def add(self, block: Block) -> None:
        """Counts a block."""
        first = _first_choice(block)
        own = block.element("emitted_ids", np.zeros(block.num_rows, np.int64))
        kinds = block.words("logits_kind")
        if first is None or own is None:
            return
        ids, p, known = first
        rows = known & block.is_real & own.known
        if kinds is not None:
            rows &= ~np.isin(kinds[0], [i for i, word in enumerate(kinds[1]) if word == "raw"])
        p, hit = p[rows], own.values[rows] == ids[rows]
        bins = np.minimum((p * _BINS).astype(np.int64), _BINS - 1)
        self.steps += len(p)
        self.observed += np.bincount(bins, weights=hit, minlength=_BINS)
        self.expected += np.bincount(bins, weights=p, minlength=_BINS)
        self.variance += np.bincount(bins, weights=p * (1 - p), minlength=_BINS)


def _first_choice(block: Block) -> tuple[Array, Array, Array] | None:
    """[rows] id and probability of the target's first choice at the root."""
    ids, logprobs = block.columns.get("target_top.id"), block.columns.get("target_top.logprob")
    if ids is None or logprobs is None or ids.known is not None or logprobs.known is not None:
        return None
    if not np.array_equal(ids.lengths[1], logprobs.lengths[1]) or not len(ids.values):
        return None
    outer = block.lengths("target_top.id")
    inner_start = np.cumsum(ids.lengths[1]) - ids.lengths[1]
    list_start = np.cumsum(outer) - outer
    at_list = np.minimum(list_start, len(ids.lengths[1]) - 1)
    known = (outer > 0) & (ids.lengths[1][at_list] > 0)
    at = np.where(known, inner_start[at_list], 0)
    p = np.exp(np.minimum(logprobs.values[at].astype(np.float64), 0.0))
    return ids.values[at].astype(np.int64), np.nan_to_num(p), known & np.isfinite(p)


def judge_law(facts: Facts) -> Iterator[Outcome]:
    """A chi-square test over bins of the first choice's probability."""
    tally = facts.of(LawTally)
    if tally.steps < _MIN_STEPS:
        return
    used = tally.variance > 5
    chi = float((((tally.observed - tally.expected)[used]) ** 2 / tally.variance[used]).sum())
    freedom = int(used.sum())
    deviation = float(np.abs(tally.observed - tally.expected).sum() / tally.steps)
    evidence = {
        "first_choice_observed": float(tally.observed.sum() / tally.steps),
        "first_choice_expected": float(tally.expected.sum() / tally.steps),
        "chi_square": chi,
        "degrees_of_freedom": freedom,
        "steps": tally.steps,
    }
    if freedom and chi_square_tail(chi, freedom) < 0.001 and deviation > 0.02:
        yield Finding(
            id="verification/biased",
            strength=Strength.STRONG,
            summary="Committed tokens do not follow the target's distribution.",
            advice="Check the recovered token: it must be drawn from max(p - q, 0), normalised.",
            evidence=evidence,
        )
    else:
        yield Cleared(id="verification/biased", summary="committed tokens follow p", evidence=evidence)


def chi_square_tail(value: float, freedom: int) -> float:
    """P(chi-square > value), by Wilson and Hilferty's normal approximation of the cube root (1931)."""
    spread = 2 / (9 * freedom)
    z = ((value / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(z / math.sqrt(2))
