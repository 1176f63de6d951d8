"""Is the state that the draft feeds back to itself in the form it was trained with?

EAGLE-3 feeds back the un-normed state, 3.1 the normed one. A norm leaves every state the RMS of its own
weight; where the header says which is meant, that settles it. Otherwise, swapped, the first token is fine and
the second collapses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import MIN_STEPS, Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.records import Run

_NORMAL = 0.35
"""alpha1 from which the first token is fine."""
_STEADY, _ALIKE = 0.05, 0.25
"""Relative spread of the RMS that a norm leaves, and its distance from the RMS of the norm's weight."""
_FEW = 20
_FALL = 0.7
"""Healthy drafts accept the second token at least as often as .9 of the first, whatever they are."""


class FeedbackTally:
    """RMS of the draft's first input and of the state fed back to it."""

    FIELDS = ("draft_inputs.rms", "proposal_ids", "flags", "num_accepted", "emitted_ids", "parents")

    def __init__(self, run: Run) -> None:
        self.steps = 0
        self.first = self.second = 0.0
        self.second_squares = 0.0
        self.log_ratio = 0.0
        self.refused = Witnesses()
        """Steps whose first token was accepted and whose second was not."""

    @property
    def spread(self) -> float:
        """Standard deviation of the fed-back state's RMS over its mean."""
        mean = self.second / self.steps
        return math.sqrt(max(self.second_squares / self.steps - mean * mean, 0.0)) / mean

    def add(self, block: Block) -> None:
        """Counts a block."""
        zeros = np.zeros(block.num_rows, np.int64)
        first, second = block.element("draft_inputs.rms", zeros), block.element("draft_inputs.rms", zeros + 1)
        if first is None or second is None:
            return
        rows = block.is_real & first.known & second.known & (first.values > 0) & (second.values > 0)
        rows &= np.isfinite(first.values) & np.isfinite(second.values)
        self.steps += int(rows.sum())
        self.first += float(first.values[rows].sum())
        self.second += float(second.values[rows].sum())
        self.second_squares += float((second.values[rows] ** 2).sum())
        self.log_ratio += float(np.log(second.values[rows] / first.values[rows]).sum())
        self.refused.note(block, rows & (block.accepted == 1) & (block.drafted > 1))


def judge(facts: Facts) -> Iterator[Outcome]:
    """RMS of the fed-back state against the first input, where the second token collapses."""
    tally, sample = facts.of(FeedbackTally), facts.sample
    if not tally.steps:
        if sample.depth > 1 and not facts.shares_vocabulary:
            yield facts.not_recorded(
                "tap-form/feedback-norm", "record the RMS of the draft's input at each depth", "draft_inputs"
            )
        return
    ratio = float(np.exp(tally.log_ratio / tally.steps))
    second = sample.conditional(1)
    evidence = {
        "alpha1": sample.alpha1,
        "c_2": second,
        "rms_of_first_input": tally.first / tally.steps,
        "rms_of_fed_back_state": tally.second / tally.steps,
        "accept_length": sample.accept_length,
    }
    is_normed, is_meant = _is_normed(facts, tally), _is_meant_normed(facts)
    if is_normed is not None and is_meant is not None and is_normed is not is_meant:
        more = {"spread_of_fed_back_state": tally.spread}
        yield _swapped(is_normed, {**evidence, **more}, tally.refused.steps)
    elif 0.5 <= ratio <= 2:
        yield Cleared(
            id="tap-form/feedback-norm",
            summary=f"the fed-back state is {ratio:.2f} times as large as the first input",
            evidence=evidence,
        )
    elif _collapses(sample.alpha1, second):
        is_strong = tally.steps >= MIN_STEPS and sample.is_enough
        forms = ("normed", "un-normed") if ratio < 1 else ("un-normed", "normed")
        yield Finding(
            id="tap-form/feedback-norm",
            strength=Strength.STRONG if is_strong else Strength.HINT,
            summary=f"The fed-back state is {forms[0]}, the draft expects it {forms[1]}: "
            "the first token is fine, the second collapses.",
            advice="Feed back the state "
            + ("before the norm, as EAGLE-3 does." if ratio < 1 else "after the norm, as EAGLE-3.1 does."),
            evidence=evidence,
            steps=tally.refused.steps,
        )


def _is_meant_normed(facts: Facts) -> bool | None:
    """What the draft's config says, where the recorder passed it on."""
    engine = facts.run.engine
    given = None if engine is None else (engine.flags or {}).get("norm_output")
    return given if isinstance(given, bool) else None


def _is_normed(facts: Facts, tally: FeedbackTally) -> bool | None:
    """Whether the fed-back state has the constant size of a norm's output; None in doubt."""
    prints = {} if facts.run.draft is None else facts.run.draft.fingerprints
    weight = prints.get("norm.weight")
    if weight is None or not weight.rms or tally.steps < _FEW:
        return None
    distance = abs(math.log(tally.second / tally.steps / weight.rms))
    if tally.spread < _STEADY and distance < _ALIKE:
        return True
    return False if tally.spread > 2 * _STEADY and distance > 2 * _ALIKE else None


def _swapped(is_normed: bool, evidence: dict[str, object], steps: Sequence[int]) -> Finding:
    forms = ("normed", "un-normed") if is_normed else ("un-normed", "normed")
    return Finding(
        id="tap-form/feedback-norm",
        strength=Strength.CERTAIN,
        summary=f"The fed-back state is {forms[0]}, the draft's config says {forms[1]}.",
        advice="Feed back the state "
        + (
            "before the norm: the config's norm_output is false (EAGLE-3)."
            if is_normed
            else "after the norm: the config's norm_output is true (EAGLE-3.1)."
        ),
        evidence=evidence,
        steps=steps,
    )


def _collapses(first: Share, second: Share) -> bool:
    """The second token is accepted far less often than the first, by more than chance."""
    if first.value is None or second.value is None or first.value < _NORMAL:
        return False
    return second.value < _FALL * first.value and not first.overlaps(second)
