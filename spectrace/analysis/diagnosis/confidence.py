"""Does the draft stop where it is unsure, or where it is sure? Chains short of their budget tell."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.format.records import Run

_MIN_ENDS = 50
"""Chains that must have ended early, and tokens behind which drafting went on."""
_BINS = 200
_CLEAR = 0.98
"""Share of the pairs of an ending and a going-on token that a threshold leaves on one side.

A threshold on q itself separates them wholly; one on another quantity does so less."""


class ConfidenceTally:
    """Probability of the tokens behind which drafting ended early, and of those behind which it went on."""

    FIELDS = ("proposal_ids", "draft_logprobs", "flags", "parents", "stop")

    def __init__(self, run: Run) -> None:
        wanted = None if run.speculation is None else run.speculation.num_draft_tokens
        self.wanted = wanted or 0
        self.ended, self.went_on = np.zeros(_BINS, np.int64), np.zeros(_BINS, np.int64)
        """Tokens by q."""
        self.steps = Witnesses()

    def add(self, block: Block) -> None:
        """Counts a block."""
        logq = block.tokens("draft_logprobs")
        if logq is None or not self.wanted:
            return
        rows = block.is_real & ~block.is_tree
        early = rows & (block.drafted < self.wanted)
        stop = block.words("stop")
        if stop is not None:
            early &= stop[0] < 0  # the last proposals of a text are short for another reason
        is_last = block.token_index == block.drafted[block.token_rows] - 1
        usable = logq.known & np.isfinite(logq.values)
        q = np.exp(np.minimum(np.where(usable, logq.values, 0.0), 0.0))
        at = np.minimum((q * _BINS).astype(np.int64), _BINS - 1)
        last = usable & is_last & early[block.token_rows]
        others = usable & ~is_last & rows[block.token_rows]
        self.ended += np.bincount(at[last], minlength=_BINS)
        self.went_on += np.bincount(at[others], minlength=_BINS)
        self.steps.note(block, early)

    @property
    def above(self) -> float:
        """Share of all pairs in which the token at the end is the surer one; ties count half."""
        below = np.cumsum(self.went_on) - self.went_on
        wins = float((self.ended * (below + 0.5 * self.went_on)).sum())
        return wins / float(self.ended.sum() * self.went_on.sum())


def judge(facts: Facts) -> Iterator[Outcome]:
    """Sureness at the end of early chains against sureness within."""
    tally = facts.of(ConfidenceTally)
    ends, others = int(tally.ended.sum()), int(tally.went_on.sum())
    if ends < _MIN_ENDS or others < _MIN_ENDS:
        return
    evidence = {"ended_early": ends, "went_on": others, "ends_surer": tally.above}
    if tally.above > _CLEAR:
        yield Finding(
            id="verification/confidence-gate",
            strength=Strength.STRONG,
            summary="Drafting ends behind tokens the draft is sure of and goes on behind those it is not: "
            "the confidence gate is on the wrong side.",
            advice="Stop when the probability falls below the threshold, not when it rises above.",
            evidence=evidence,
            steps=tally.steps.steps,
        )
    else:
        yield Cleared(
            id="verification/confidence-gate",
            summary="drafting does not end where the draft is sure",
            evidence=evidence,
        )
