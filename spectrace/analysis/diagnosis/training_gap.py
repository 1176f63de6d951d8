"""Does the draft accept what its training promised? A gap that no other rule explains is a place to look."""

from __future__ import annotations

from collections.abc import Iterator

from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength

_GAP = 0.1
"""Fall of alpha1 below the accuracy of training that is worth a word: other text costs a draft some."""


def judge(facts: Facts) -> Iterator[Outcome]:
    """The first position's accuracy in training against alpha1; a hint only, as other text does the same."""
    given = (facts.run.training or {}).get("first_position_accuracy")
    sample = facts.sample
    if not isinstance(given, (int, float)) or isinstance(given, bool) or not 0 < given <= 1:
        return
    if not sample.is_enough or not facts.has_prompts:
        return
    evidence = {"alpha1": sample.alpha1, "training_first_position_accuracy": float(given)}
    if sample.alpha1.high >= given - _GAP:
        yield Cleared(
            id="tap-form/training-gap", summary="accepted about as training promised", evidence=evidence
        )
        return
    yield Finding(
        id="tap-form/unknown",
        strength=Strength.HINT,
        summary=f"Training promised {given:.2f} at the first position, {sample.alpha1.value:.2f} accepted: "
        "the draft is run otherwise than in training, or on other text.",
        advice="Run spectrace probe on a training text: it tries norms, residual, order and map one by one.",
        evidence=evidence,
    )
