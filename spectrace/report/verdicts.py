"""The verdicts that a packed trace carries: what the rules said while they still had every id and text.

A sentence that quotes the trace is left out as a whole, a token's id is taken out of one, and of the evidence
numbers stay. `analysis.diagnosis.carried` reads them back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from spectrace.analysis.diagnosis import Diagnosis
from spectrace.report.vocabulary import is_plain, known_words, without_ids

LEFT_OUT = "(the sentence quotes the trace and was left out)"
_SENTENCES = ("summary", "advice", "reason", "how")
_NAMES_IDS = re.compile(r"(^|_)ids?($|_)")


def carried(
    found: Diagnosis, include: frozenset[str], kept_steps: Mapping[int, int] | None
) -> dict[str, Any]:
    """A diagnosis as plain values that may leave the machine.

    Args:
        found: what the rules said of the whole trace.
        include: options given; with ``text`` everything stays.
        kept_steps: number of a step -> its number in the packed trace; None when all are kept.
    """
    whole = found.to_mapping()
    for group in ("findings", "cleared", "not_checked", "counterfactuals"):
        for item in whole[group]:
            item.pop("witnesses", None)  # worked out anew from the steps that are kept
            if "steps" in item and kept_steps is not None:
                item["steps"] = [kept_steps[step] for step in item["steps"] if step in kept_steps]
            if "text" not in include:
                _reduce(item)
    return whole


def _reduce(item: dict[str, Any]) -> None:
    for name in _SENTENCES:
        if name in item:
            item[name] = without_ids(item[name]) if is_plain(item[name]) else LEFT_OUT
    for name in ("id", "name"):
        if name in item and not is_plain(item[name]):
            item[name] = LEFT_OUT
    if "missing" in item:
        item["missing"] = [name for name in item["missing"] if is_plain(name)]
    if "evidence" in item:
        item["evidence"] = _numbers(item["evidence"])


def _numbers(evidence: Any) -> Any:
    """Evidence without texts, and without numbers that are called ids."""
    if isinstance(evidence, Mapping):
        left = {key: _numbers(value) for key, value in evidence.items() if _may_stay(key, value)}
        return {key: value for key, value in left.items() if value is not None}
    if isinstance(evidence, Sequence) and not isinstance(evidence, str):
        return [value for item in evidence if (value := _numbers(item)) is not None]
    return evidence if isinstance(evidence, (bool, int, float)) else None


def _may_stay(key: str, value: Any) -> bool:
    words = re.findall(r"[^\W\d_]+", key)
    if not known_words().issuperset(word.lower() for word in words) or len(key) > 80:
        return False
    return isinstance(value, Mapping) or _NAMES_IDS.search(key) is None
