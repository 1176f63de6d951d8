"""What a rule answers: found, cleared, or could not be checked. Frozen results, no arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from spectrace.analysis.intervals import Mean, Share


class Strength(str, Enum):
    """How much a finding is worth."""

    CERTAIN = "certain"
    """The record contradicts itself; one witness is enough."""
    STRONG = "strong"
    """Statistics over enough steps."""
    HINT = "hint"
    """A signature only: where to look next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A value of a step that shows a finding."""

    step: int
    """Number of the step, as ``spectrace steps`` counts them."""
    field: str
    """Name of the recorded field."""
    value: int | Sequence[int]
    should_be: int | Sequence[int]

    @property
    def words(self) -> str:
        """Name, value and what it should be.

        >>> Witness(step=5, field="draft_kv_length", value=21, should_be=18).words
        'draft kv length 21, should be 18'
        """
        given, wanted = (
            " ".join(map(str, one)) if isinstance(one, Sequence) else f"{one:,}"
            for one in (self.value, self.should_be)
        )
        return f"{self.field.replace('_', ' ')} {given}, should be {wanted}"

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "step": self.step,
            "field": self.field,
            "value": plain(self.value),
            "should_be": plain(self.should_be),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A named cause."""

    id: str
    """``rule/name``, for example ``vocab-map/offset-read-as-direct``."""
    strength: Strength
    summary: str
    """One plain sentence."""
    advice: str
    """What to do next, one sentence."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Numbers by name; shares with n and their interval."""
    steps: Sequence[int] = ()
    """Numbers of the first steps that show it, as ``spectrace steps`` counts them."""
    witnesses: Sequence[Witness] = ()
    """What is wrong in these steps, where one value is."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "id": self.id,
            "strength": self.strength.value,
            "summary": self.summary,
            "advice": self.advice,
            "evidence": plain(self.evidence),
            "steps": list(self.steps),
            "witnesses": [witness.to_mapping() for witness in self.witnesses],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """A cause that was looked for and is not there."""

    id: str
    """Name of the rule, or ``rule/name`` where only that part of it was checked."""
    summary: str
    """What was seen, in a few words."""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"id": self.id, "summary": self.summary, "evidence": plain(self.evidence)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NotChecked:
    """A cause that the trace cannot answer for."""

    id: str
    """Name of the rule, or ``rule/name``."""
    reason: str
    """Why, in a few words; the recorder's own reason where it gave one."""
    how: str = ""
    """How to get what is missing."""
    missing: Sequence[str] = ()
    """Names of the missing fields."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"id": self.id, "reason": self.reason, "how": self.how, "missing": list(self.missing)}


Outcome: TypeAlias = Finding | Cleared | NotChecked


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """What would have been, computed from the trace alone."""

    name: str
    summary: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    is_telling: bool = True
    """It says more than that all is as it should be."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "name": self.name,
            "summary": self.summary,
            "evidence": plain(self.evidence),
            "is_telling": self.is_telling,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What all rules say of a trace."""

    findings: Sequence[Finding]
    """The most likely cause first."""
    cleared: Sequence[Cleared]
    not_checked: Sequence[NotChecked]
    counterfactuals: Sequence[Counterfactual]
    measured: Mapping[str, Any]
    """Steps, prompts, accept length, alpha1 and acceptance per position."""
    look_first: Sequence[str] = ()
    """Rules in the order in which the signature of the acceptance suggests to look at them."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "findings": [finding.to_mapping() for finding in self.findings],
            "cleared": [cleared.to_mapping() for cleared in self.cleared],
            "not_checked": [item.to_mapping() for item in self.not_checked],
            "counterfactuals": [item.to_mapping() for item in self.counterfactuals],
            "measured": plain(self.measured),
            "look_first": list(self.look_first),
        }


def plain(value: Any) -> Any:
    """Evidence as values that JSON can hold."""
    if isinstance(value, (Share, Mean)):
        return value.to_mapping()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value
