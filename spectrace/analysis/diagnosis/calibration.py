"""Are draft tokens accepted as often as min(1, p / q) says, token by token?

The mean over a run hides faults that accept unlikely tokens more and likely ones less often; classes of
min(1, p / q) do not. What the rule decides surely weighs most, what it leaves to a coin as chance allows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.output_law import chi_square_tail
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Finding, Strength
from spectrace.analysis.expectation import by_full_rule
from spectrace.format.records import Run

_EDGES = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)
"""Classes of min(1, p / q): from here to the next."""
_CHANCE = 1e-4
"""One healthy run in ten thousand: this test runs on every sampled trace."""
_VISIBLE = 0.01
"""Least share of all judged tokens that was decided otherwise."""
_FAR = 0.5
"""Distance of min(1, p / q) from the decision that makes a step worth showing."""


class CalibrationTally:
    """Observed and expected acceptances by class."""

    FIELDS = (
        "proposal_ids", "target_logprobs", "draft_logprobs", "num_accepted", "emitted_ids", "flags",
        "parents",
    )  # fmt: skip

    def __init__(self, run: Run) -> None:
        size = len(_EDGES) + 1
        self.trials, self.observed = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.expected, self.variance = np.zeros(size), np.zeros(size)
        self.steps = Witnesses()

    def add(self, block: Block) -> None:
        """Counts a block."""
        p, q = block.tokens("target_logprobs"), block.tokens("draft_logprobs")
        if p is None or q is None:
            return
        at = block.chain_reached & p.known & q.known & ~np.isnan(p.values) & np.isfinite(q.values)
        ratio = by_full_rule(np.where(at, p.values, 0.0), np.where(at, q.values, 0.0))
        accepted, own = block.token_accepted, ratio[at]
        kind, size = np.searchsorted(_EDGES, own, side="right"), len(_EDGES) + 1
        self.trials += np.bincount(kind, minlength=size)
        self.observed += np.bincount(kind[accepted[at]], minlength=size)
        self.expected += np.bincount(kind, weights=own, minlength=size)
        self.variance += np.bincount(kind, weights=own * (1 - own), minlength=size)
        self.steps.note_tokens(block, at & (np.abs(accepted - ratio) > _FAR))


def judge_calibration(facts: Facts) -> Iterator[Finding]:
    """A chi-square test over the classes; a class without spread counts as if it had that of one token."""
    tally = facts.of(CalibrationTally)
    total = int(tally.trials.sum())
    if not total:
        return
    apart = tally.observed - tally.expected
    chi, freedom = float((apart**2 / (tally.variance + 1)).sum()), int((tally.trials > 0).sum())
    share = float(np.abs(apart).sum()) / total
    if chi_square_tail(chi, freedom) >= _CHANCE or share < _VISIBLE:
        return
    classes = {
        f"p_over_q_from_{low:g}": [int(seen), round(float(meant), 1), int(trials)]
        for low, seen, meant, trials in zip((0.0, *_EDGES), tally.observed, tally.expected, tally.trials)
        if trials
    }
    yield Finding(
        id="verification/biased",
        strength=Strength.STRONG,
        summary="Draft tokens are not accepted with min(1, p / q) by the recorded p and q: "
        f"{share:.0%} are decided otherwise.",
        advice="Check that p and q are those the sampler compared: same temperature, same processors, "
        "same position.",
        evidence={"accepted_expected_trials": classes, "chi_square": chi, "degrees_of_freedom": freedom},
        steps=tally.steps.steps,
    )
