"""Does the target itself compute what a plain forward over the same text does, also behind the prompt?

Where the prompt's states agree and later ones are near but not the same, the target read another text than
was committed: rows of rejected tokens in its cache, or tree nodes that saw each other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.reference import Comparison, Match, compare
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.format.columns import Array

_SAME = 0.03
"""Relative distance of fingerprints that rounding leaves, in bfloat16 too."""
_APART = 0.05
"""Median distance behind the prompt that a cache of 8 bits does not reach."""
_OTHER = 0.6
"""Median distance from which the rows are other states altogether: see tap-form."""
_MIN_ROWS = 6


def judge(facts: Facts) -> Iterator[Outcome]:
    """Distances of tap rows from the reference, within the prompt and behind it."""
    comparison = compare(facts)
    if comparison is None:
        return
    inside: list[float] = []
    behind: list[float] = []
    steps: list[int] = []
    for match in comparison.matches:
        if match.declared not in comparison.references:
            continue
        distance, known = _distances(comparison, match)
        inside += distance[known & match.is_prefill].tolist()
        behind += distance[known & ~match.is_prefill].tolist()
        apart = known & ~match.is_prefill & (distance > _APART)
        steps += [match.steps[at] for at in np.flatnonzero(apart).tolist()]
    if len(inside) < 2 or max(inside) > _SAME or len(behind) < _MIN_ROWS:
        return
    yield _verdict(facts, float(np.median(behind)), max(inside), len(behind), sorted(set(steps))[:5])


def _distances(comparison: Comparison, match: Match) -> tuple[Array, Array]:
    """[rows] relative distance from the reference of the same token, and whether it has one."""
    reference, _, there = comparison.reference_rows(match, match.declared)
    size = np.linalg.norm(reference, axis=1)
    known = there & (size > 0)
    distance = np.linalg.norm(match.rows - reference, axis=1)
    return np.divide(distance, size, out=np.zeros(len(size)), where=known), known


def _verdict(facts: Facts, behind: float, inside: float, rows: int, steps: list[int]) -> Outcome:
    speculation = facts.run.speculation
    is_tree = speculation is not None and speculation.tree is not None
    evidence = {"distance_behind_prompt": behind, "largest_within_prompt": inside, "rows_behind_prompt": rows}
    id_ = "tree/mask" if is_tree else "kv-state/target-states"
    if not _APART < behind < _OTHER:
        return Cleared(
            id=id_,
            summary="the target's states behind the prompt are those of a plain forward"
            if behind <= _APART
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
