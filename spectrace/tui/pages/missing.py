"""Why a field is not there, and what brings it. Words only; the trace's own are escaped."""

from __future__ import annotations

from collections.abc import Sequence

from spectrace.format.records import Run
from spectrace.format.text import visible

HOW = {
    "draft_ids": "note the draft's ids before they are mapped",
    "draft_top": "TransformersRecorder(top=5) notes alternatives; a loop of your own gives draft_top to "
    "TraceWriter.step",
    "target_ids": "note what the target picks at every place, also behind the accepted tokens",
    "target_top": "TransformersRecorder(top=5) notes alternatives; a loop of your own gives target_top to "
    "TraceWriter.step",
    "parents": "note the parent of each node, -1 for the root",
    "taps": "TransformersRecorder(taps=[...]) fingerprints hidden states; for EAGLE-3 spectrace record does",
    "reference": "spectrace record --reference adds one plain forward of the target",
    "vocab_map": "the recorder writes d2t and t2d of the draft's checkpoint into the header",
    "tokens": "TransformersRecorder(text=True, tokenizer=...) adds token texts",
    "prompt_ids": "TransformersRecorder(text=True) keeps the prompts",
}
"""Field -> what to do to have it."""

_MOST = 64


def missing_words(run: Run, field: str) -> str:
    """One sentence about a field that the trace lacks, with the recorder's own reason where it gave one."""
    unavailable = {} if run.capture is None else run.capture.unavailable
    reason = unavailable.get(field)
    words = f"{field} is not recorded"
    if reason is not None:
        return f"{words}: {visible(str(reason), limit=200)}"
    return f"{words}: {HOW[field]}" if field in HOW else words


def unavailable_fields(run: Run) -> list[tuple[str, str]]:
    """Names of the fields that the recorder says it could not get, and why; those of one reason together."""
    given = {} if run.capture is None else run.capture.unavailable
    by_reason: dict[str, list[str]] = {}
    for name, reason in list(given.items())[:_MOST]:
        by_reason.setdefault(visible(str(reason), limit=200), []).append(visible(str(name), limit=40))
    return [(", ".join(names), reason) for reason, names in by_reason.items()]


def missing_fields(run: Run, fields: Sequence[str]) -> list[str]:
    """Sentences about fields that are missing: one for each reason of the recorder, one for the rest."""
    given = {} if run.capture is None else run.capture.unavailable
    by_reason: dict[str, list[str]] = {}
    for field in fields:
        by_reason.setdefault(visible(str(given.get(field, "")), limit=200), []).append(field)
    found = []
    for reason, names in by_reason.items():
        how = next((HOW[name] for name in ("draft_top", "target_top") if name in names), "")
        told = reason or how
        found.append(f"not recorded: {', '.join(names)}{told and '; '}{told}")
    return found
