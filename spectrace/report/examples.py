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
from spectrace.report.redaction import OTHERS, RUN, STEPS, at_path

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
                    yield Example(
                        path=rule.path, action=rule.action, note=rule.note, before=before, after=after
                    )
            pairs = list(islice(zip(trace, packed), _LOOKED_AT))
            for rule in STEPS:
                found = next((pair for pair in pairs if _of(pair[0], rule.path) is not None), None)
                if found is not None:
                    yield Example(
                        path=rule.path, action=rule.action, note=rule.note,
                        before=_of(found[0], rule.path), after=_of(found[1], rule.path),
                    )  # fmt: skip
            for rule in OTHERS:
                before = _beside(trace, rule.path)
                if before is not None:
                    yield Example(
                        path=rule.path, action=rule.action, note=rule.note,
                        before=before, after=_beside(packed, rule.path),
                    )  # fmt: skip


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
