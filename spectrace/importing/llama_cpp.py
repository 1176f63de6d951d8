"""llama-server's ``timings``: sums over a request, and nothing else.

How many rounds there were is not said, so no accept length can be had: one step stands for a request. What
``-lv 5`` logs has every round: see `llama_log`.
Source: ggml-org/llama.cpp, tools/server/server-task.cpp ``result_timings::to_json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spectrace.importing.counting import FROM_ZERO, SUMMED, summed_step
from spectrace.importing.reading import count, inside, optional_count, text
from spectrace.importing.telling import Told

FACTS: Mapping[str, Any] = {"engine": {"name": "llama.cpp"}}


def claims(document: Any) -> bool:
    """Whether a document is a response of llama-server that speculated, or the last piece of one."""
    if inside(document, "timings", "draft_n") is None or inside(document, "stop") is False:
        return False
    choices = inside(document, "choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first is None or inside(first, "finish_reason") is not None


def requests(document: Any) -> Iterator[Told]:
    """The request of a response."""
    timings = inside(document, "timings")
    if not claims(document):
        return
    drafted, accepted = count(timings, "draft_n"), count(timings, "draft_n_accepted")
    prompt, predicted = optional_count(timings, "prompt_n"), optional_count(timings, "predicted_n")
    cached = optional_count(timings, "cache_n")
    notes = {"num_accepted": SUMMED}
    if prompt is None:
        notes["position"] = FROM_ZERO
    yield Told(
        name=text(document, "id"),
        steps=[
            summed_step(
                drafted, accepted, accepted if predicted is None else predicted, (prompt or 0) + (cached or 0)
            )
        ],
        notes=notes,
        facts={"target": {"id": text(document, "model")}} if text(document, "model") else {},
    )
