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


def missing_words(run: Run, field: str) -> str:
    """One sentence about a field that the trace lacks, with the recorder's own reason where it gave one."""
    unavailable = {} if run.capture is None else run.capture.unavailable
    reason = unavailable.get(field)
    words = f"{field} is not recorded"
    if reason is not None:
        return f"{words}: {visible(str(reason), limit=200)}"
    return f"{words}: {HOW[field]}" if field in HOW else words


def missing_fields(run: Run, fields: Sequence[str]) -> list[str]:
    """Sentences about several fields: one for each reason of the recorder, one for the rest."""
    unavailable = {} if run.capture is None else run.capture.unavailable
    found = [missing_words(run, field) for field in fields if field in unavailable]
    rest = [field for field in fields if field not in unavailable]
    if rest:
        how = next((HOW[field] for field in ("draft_top", "target_top") if field in rest), "")
        found.append(f"not recorded: {', '.join(rest)}{how and '; '}{how}")
    return found
