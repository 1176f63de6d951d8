"""Does the target itself compute what a plain forward over the same text does, also behind the prompt?

Where the prompt's states agree and later ones are near but not the same, the target read another text than
was committed: rows of rejected tokens in its cache, or tree nodes that saw each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.reference import Match, TapComparison, compare_taps
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.format.columns import Array

_SAME = 0.03
"""Relative distance of fingerprints that rounding leaves, in bfloat16 too."""
_APART = 0.05
"""Median distance behind the prompt that a cache of 8 bits does not reach."""
_EXACT, _APART_EXACT = 0.001, 0.02
"""Distance within the prompt that only single precision keeps, and the median that tells there."""
_OTHER = 0.45
"""Median distance from which the rows are other states altogether: see tap-form."""
_MIN_ROWS = 6


def judge(facts: Facts) -> Iterator[Outcome]:
    """Distances of tap rows from the reference, within the prompt and behind it."""
    comparison = compare_taps(facts)
    if comparison is None:
        return
    inside: list[float] = []
    behind: list[float] = []
    steps: list[int] = []
    nearest: list[int] = []
    matches = [match for match in comparison.matches if match.declared in comparison.references]
    for match in matches:
        distance, known = _distances(comparison, match, match.declared)
        inside += distance[known & match.is_prefill].tolist()
        behind += distance[known & ~match.is_prefill].tolist()
        apart = known & ~match.is_prefill & (distance > _APART)
        steps += [match.steps[at] for at in np.flatnonzero(apart).tolist()]
        nearest += _same_as(comparison, match)
    if len(inside) < 2 or max(inside) > _SAME or len(behind) < _MIN_ROWS:
        return
    evidence = {
        "distance_behind_prompt": float(np.median(behind)),
        "largest_within_prompt": max(inside),
        "rows_behind_prompt": len(behind),
    }
    if np.median(behind) > _limit(max(inside)) and len(nearest) == len(matches):
        yield _other_boundary(
            {**evidence, "boundaries_nearest_behind_prompt": nearest}, sorted(set(steps))[:5]
        )
    else:
        yield _verdict(facts, evidence, sorted(set(steps))[:5])


def _limit(inside: float) -> float:
    """Median distance behind the prompt that is no rounding, by the largest within it."""
    return _APART_EXACT if inside <= _EXACT else _APART


def _same_as(comparison: TapComparison, match: Match) -> list[int]:
    """The boundary that a tap's rows behind the prompt are those of, if there is one."""
    for boundary in comparison.boundaries:
        distance, known = _distances(comparison, match, boundary)
        chosen = known & ~match.is_prefill
        if chosen.any() and float(np.median(distance[chosen])) <= _SAME:
            return [boundary]
    return []


def _other_boundary(evidence: dict[str, Any], steps: list[int]) -> Finding:
    return Finding(
        id="tap-form/prefill-decode",
        strength=Strength.STRONG,
        summary="The draft gets the right states for the prompt and those of other layers after it.",
        advice="Look at the handover from prefill to decode: which rows, which buffer, which layer's output.",
        evidence=evidence,
        steps=steps,
    )


def _distances(comparison: TapComparison, match: Match, boundary: int) -> tuple[Array, Array]:
    """[n] relative distance from the reference of the same token, and whether it has one."""
    reference, _, there = comparison.reference_rows(match, boundary)
    size = np.linalg.norm(reference, axis=1)
    known = there & (size > 0)
    distance = np.linalg.norm(match.rows - reference, axis=1)
    return np.divide(distance, size, out=np.zeros(len(size)), where=known), known


def _verdict(facts: Facts, evidence: dict[str, Any], steps: list[int]) -> Outcome:
    behind = evidence["distance_behind_prompt"]
    speculation = facts.run.speculation
    is_tree = speculation is not None and speculation.tree is not None
    id_ = "tree/mask" if is_tree else "kv-state/poisoned"
    limit = _limit(evidence["largest_within_prompt"])
    if not limit < behind < _OTHER:
        return Cleared(
            id=id_,
            summary="the target's states behind the prompt are those of a plain forward"
            if behind <= limit
            else "the states behind the prompt are other ones altogether",
            evidence=evidence,
        )
    if is_tree:
        summary = "A node of the tree sees more or less than its ancestors"
        advice = (
            "Check the tree's attention mask: each node may see the committed text, its ancestors and itself."
        )
    else:
        summary = "The target's cache holds other rows than the committed text's"
        advice = (
            "Crop the target's cache to the committed length after each verification, rows in their order."
        )
    return Finding(
        id=id_,
        strength=Strength.STRONG,
        summary=f"{summary}: behind the prompt its states are {behind:.0%} off those of a plain forward "
        "over the same text, within it they are the same.",
        advice=advice,
        evidence=evidence,
        steps=steps,
    )
