"""What would leave the machine, field by field, with one example each: what `pack --dry-run` shows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import spectrace
from spectrace.analysis.diagnosis import Diagnosis
from spectrace.format.fields import FIELD_BY_NAME
from spectrace.format.headers import plain
from spectrace.format.reader import Trace
from spectrace.format.records import Step
from spectrace.report.redacting import redact
from spectrace.report.redaction import OTHERS, RUN, STEPS, Rule, at_path

_LOOKED_AT = 512
"""First steps in which an example is looked for."""
_TEXTS = 4
"""Texts of tokens that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One field of a trace and what becomes of it."""

    path: str
    action: str
    note: str
    before: Any
    """A value the trace has; None when it has none."""
    after: Any
    """What of this value would leave; None for nothing."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "field": self.path,
            "action": self.action,
            "how": self.note,
            "example": self.before,
            "leaves_as": self.after,
        }


def examples(trace: Trace, include: frozenset[str]) -> Iterator[Example]:
    """Each field that the trace has, in the order of the table.

    Made by redacting the first steps as `pack` would, not by saying what it should do.
    """
    keep = np.zeros(len(trace), bool)
    keep[:_LOOKED_AT] = True
    nothing = Diagnosis(findings=(), cleared=(), not_checked=(), counterfactuals=(), measured={})
    with tempfile.TemporaryDirectory(prefix="spectrace-") as folder:
        path = Path(folder) / "trace.spectrace"
        redact(trace, path, nothing, include=include, keep=keep)
        with spectrace.open(path) as packed:
            for rule in RUN:
                before = at_path(trace.run_mapping, rule.path)
                if before is not None and rule.path != "packed":
                    after = at_path(packed.run_mapping, rule.path)
                    yield _example(rule, before, after)
            pairs = list(islice(zip(trace, packed), _LOOKED_AT))
            for rule in STEPS:
                both = ((_of(one, rule.path), _of(other, rule.path)) for one, other in pairs)
                values = [(before, after) for before, after in both if before is not None]
                if values:
                    # One that changes tells more than one that does not.
                    yield _example(rule, *next((two for two in values if two[0] != two[1]), values[0]))
            for rule in OTHERS:
                before = _beside(trace, rule.path)
                if before is not None:
                    yield _example(rule, before, _beside(packed, rule.path))


def _beside(trace: Trace, path: str) -> Any:
    """A value of a record that is no step: the first there is, or the texts of a few tokens."""
    kind, _, key = path.partition(".")
    if kind == "tokens":
        return _texts(trace, is_draft=key == "draft") or None
    if kind == "end":
        return (trace.end or {}).get(key)
    records = {"request": trace.requests, "reference": trace.references, "gap": trace.gaps}.get(kind, ())
    found = (getattr(record, key, None) for record in islice(records, _LOOKED_AT))
    return plain(next((value for value in found if value is not None), None))


def _texts(trace: Trace, *, is_draft: bool) -> dict[str, str]:
    """Texts of the tokens that the first steps name."""
    found: dict[str, str] = {}
    for step in islice(trace, _LOOKED_AT):
        for token in (step.draft_ids or ()) if is_draft else (*step.proposal_ids, *step.emitted_ids):
            text = None if token is None else trace.token_text(token, draft=is_draft)
            if text is not None:
                found[str(token)] = text
            if len(found) >= _TEXTS:
                return found
    return found


def _example(rule: Rule, before: Any, after: Any) -> Example:
    """What became of a value; what a rule left as it was is kept."""
    action = "kept" if before == after else rule.action
    return Example(path=rule.path, action=action, note=rule.note, before=before, after=after)


def _of(step: Step, path: str) -> Any:
    """A column's value of one step, objects by their key."""
    name, _, key = path.partition(".")
    value = getattr(step, name)
    shape = FIELD_BY_NAME[name].shape
    if value is None or not key:
        return plain(value)
    if shape == "pairs":
        return [[pair[0 if key == "id" else 1] for pair in node] for node in value] or None
    if shape == "struct":
        return plain(value.get(key))
    found = [plain(item.get(key)) for item in value]
    return found if any(item is not None for item in found) else None
