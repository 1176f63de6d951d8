"""What a diagnosis comes to: its causes, the sentence where there is none, what else tells something.

One place for the command, the viewer and the report, so that all of them say the same. Escapes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from spectrace.analysis.diagnosis.verdict import Cleared, Counterfactual, Diagnosis, Finding, NotChecked
from spectrace.analysis.diagnosis.words import rule_of, words_of

_TOO_SMALL = "workload/too-small"


def causes(found: Diagnosis) -> list[Finding]:
    """The findings that name a cause: that there is little to judge by is none."""
    return [finding for finding in found.findings if finding.id != _TOO_SMALL]


def smallness(found: Diagnosis) -> Finding | None:
    """That there is too little to judge by, where there is."""
    return next((finding for finding in found.findings if finding.id == _TOO_SMALL), None)


def nothing_found(found: Diagnosis) -> str:
    """What is said where there is no cause."""
    cleared, others = answered(found)
    return (
        f"Nothing found. That is no proof of health: {len(cleared)} cleared, {len(others)} could not be "
        "checked."
    )


def cleared_of(found: Diagnosis) -> list[Cleared]:
    """What is cleared; a rule with a finding is not called so."""
    accused = {name for finding in found.findings for name in (finding.id, rule_of(finding.id))}
    return [item for item in found.cleared if item.id not in accused]


def answered(found: Diagnosis) -> tuple[list[str], list[str]]:
    """What is cleared and what could not be checked, in words; in both, with the questions in brackets."""
    cleared, others = cleared_of(found), found.not_checked
    both = {words_of(item.id) for item in others} & {words_of(item.id) for item in cleared}

    def listed(items: Sequence[Cleared | NotChecked]) -> list[str]:
        asked: dict[str, dict[str, None]] = {}
        for item in items:
            question = item.id.partition("/")[2].replace("-", " ")
            asked.setdefault(words_of(item.id), {}).update({question: None} if question else {})
        return [
            f"{words} ({', '.join(of)})" if of and words in both else words for words, of in asked.items()
        ]

    return listed(cleared), listed(others)


def telling(found: Diagnosis) -> list[Counterfactual]:
    """What would have been, where it says more than that all is as it should be, or than a finding does."""
    accused = {rule_of(finding.id) for finding in causes(found)}
    return [
        item
        for item in found.counterfactuals
        if item.is_telling and not any(item.name.startswith(rule) for rule in accused)
    ]
