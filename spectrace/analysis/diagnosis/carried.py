"""Verdicts that a packed trace carries: read back, and given in place of rules that lack what pack removed.

They are the sender's word: whoever has the trace whose digest stands beside them can ask the rules again.
What is malformed is left out; nothing is computed from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spectrace.analysis.diagnosis.verdict import (
    Cleared,
    Counterfactual,
    Finding,
    NotChecked,
    Outcome,
    Strength,
)
from spectrace.analysis.diagnosis.words import rule_of
from spectrace.analysis.intervals import Share

NEEDS_WHOLE = frozenset(
    (
        "vocab-map",
        "tokenizer",
        "draft-head",
        "weights",
        "tap-layer",
        "tap-form",
        "window",
        "tree",
        "verification",
        "reporting",
        "workload",
        "trace",
        "kv-state",
    )
)
"""Rules that read ids, texts, map tables or fingerprints, which a packed trace has no longer."""
_MANY = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What came with a packed trace."""

    outcomes: Mapping[str, Sequence[Outcome]] = field(default_factory=dict)
    """Rule -> its answers."""
    counterfactuals: Sequence[Counterfactual] = ()
    measured: Mapping[str, Any] = field(default_factory=dict)
    is_part: bool = False
    """The packed trace holds some steps only: no rate of it is one of the run."""

    def stands_for(self, rule: str) -> bool:
        """Whether a rule is not asked because its answers came with the trace."""
        return self.is_part or rule in NEEDS_WHOLE


def carried(run: Mapping[str, Any]) -> Carried | None:
    """The verdicts in a header; None when it has none.

    Args:
        run: the run record, as anybody may have written it.
    """
    packed = run.get("packed")
    verdicts = packed.get("verdicts") if isinstance(packed, Mapping) else None
    if not isinstance(packed, Mapping) or not isinstance(verdicts, Mapping):
        return None
    outcomes: dict[str, list[Outcome]] = {}
    for outcome in _outcomes(verdicts):
        outcomes.setdefault(rule_of(outcome.id), []).append(outcome)
    return Carried(
        outcomes=outcomes,
        counterfactuals=[
            Counterfactual(name=_text(i, "name"), summary=_text(i, "summary"), evidence=_evidence(i))
            for i in _items(verdicts, "counterfactuals")
        ],
        measured=_measured(verdicts.get("measured")),
        is_part=packed.get("is_part") is True,
    )


def _outcomes(verdicts: Mapping[str, Any]) -> Iterator[Outcome]:
    for item in _items(verdicts, "findings"):
        strength, steps = item.get("strength"), item.get("steps")
        if strength in {s.value for s in Strength}:
            yield Finding(
                id=_text(item, "id"),
                strength=Strength(strength),
                summary=_text(item, "summary"),
                advice=_text(item, "advice"),
                evidence=_evidence(item),
                steps=[s for s in steps if type(s) is int and s >= 0][:16] if isinstance(steps, list) else (),
            )
    for item in _items(verdicts, "cleared"):
        yield Cleared(id=_text(item, "id"), summary=_text(item, "summary"), evidence=_evidence(item))
    for item in _items(verdicts, "not_checked"):
        missing = item.get("missing")
        yield NotChecked(
            id=_text(item, "id"),
            reason=_text(item, "reason"),
            how=_text(item, "how"),
            missing=[m for m in missing if isinstance(m, str)][:16] if isinstance(missing, list) else (),
        )


def _items(verdicts: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    given = verdicts.get(name)
    return [i for i in given if isinstance(i, Mapping)][:_MANY] if isinstance(given, list) else []


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else "?"


def _evidence(item: Mapping[str, Any]) -> Mapping[str, Any]:
    value = item.get("evidence")
    return {key: _value(v) for key, v in value.items()} if isinstance(value, Mapping) else {}


def _value(value: Any) -> Any:
    """A piece of evidence, shares and means as such."""
    if isinstance(value, list):
        return [_value(item) for item in value[:_MANY]]
    if not isinstance(value, Mapping):
        return value
    found = _share(value)
    return {str(key): _value(item) for key, item in list(value.items())[:_MANY]} if found is None else found


def _share(value: Any) -> Share | None:
    given = value if isinstance(value, Mapping) else {}
    successes, n = given.get("successes"), given.get("n")
    if type(successes) is int and type(n) is int and 0 <= successes <= n <= 2**53:
        return Share(successes, n)
    return None


def _measured(given: Any) -> dict[str, Any]:
    """What `examine.measured` says, of the whole run."""
    found = given if isinstance(given, Mapping) else {}
    counts = {
        name: n if type(n := found.get(name)) is int else 0 for name in ("steps", "proposals", "prompts")
    }
    length, conditional = found.get("accept_length"), found.get("conditional")
    return {
        **counts,
        "accept_length": length if type(length) in (int, float) else None,
        "acceptance_rate": _share(found.get("acceptance_rate")) or Share(0, 0),
        "alpha1": _share(found.get("alpha1")) or Share(0, 0),
        "conditional": [_share(item) or Share(0, 0) for item in _list(conditional)[:16]],
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
