"""What the shape of the acceptance suggests to look at first. It orders, and accuses nobody."""

from __future__ import annotations

import math

from spectrace.analysis.diagnosis.draft_head import HeadTally
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.id_map import Table

_DEAD, _LOW, _COLLAPSED = 0.05, 0.35, 0.30


def look_first(facts: Facts) -> list[str]:
    """Rules in the order to look at them; empty where acceptance looks ordinary or is too little to say.

    Thresholds lie between broken and healthy values of public reports, and are this project's own.
    """
    sample = facts.sample
    if not sample.is_enough:
        return []
    if sample.alpha1.high < _DEAD:
        if _knows_nothing(facts):
            return ["draft-head", "weights", "nonfinite"]
        return ["vocab-map", "tokenizer", "tap-layer", "tap-form", "positions"]
    if (sample.alpha1.value or 0) < _LOW:
        return ["tap-layer", "tap-form", "positions"]
    second = sample.conditional(1)
    if second.trials and (second.value or 0) < _COLLAPSED:
        return ["tap-form", "positions", "kv-state", "workload"]
    return []


def _knows_nothing(facts: Facts) -> bool:
    """The draft's entropy is near its maximum, or it always says the same."""
    tally, size = facts.of(HeadTally), Table(facts.run).draft_size
    if tally.entropies and size and size > 1:
        return tally.entropy_sum / tally.entropies > 0.9 * math.log(size)
    return tally.ids.commonest[1] > 0.95 * tally.ids.total
