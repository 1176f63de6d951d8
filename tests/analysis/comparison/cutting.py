"""Steps made of the text they commit, cut as a run may cut it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

GREEDY = {
    "verification": {"rule": "greedy", "lossless": True},
    "sampling": {"temperature": 0.0},
    "target": {"dtype": "bfloat16"},
}


def steps_of(
    text: Sequence[int],
    cuts: Iterable[int],
    *,
    num_draft_tokens: int = 3,
    request: str = "r0",
    start: int = 10,
    **fields: Any,
) -> list[dict[str, Any]]:
    """Chain steps that commit a text, each so many tokens; the rest in as few steps as it takes.

    The accepted draft tokens are the text, those behind are 900 and more; the target's picks are the text.
    """
    steps: list[dict[str, Any]] = []
    at = 0
    counts = iter(cuts)
    while at < len(text):
        own = list(text[at : at + min(next(counts, len(text)), num_draft_tokens + 1)])
        accepted = len(own) - 1
        rest = num_draft_tokens - accepted
        steps.append(
            {
                "request": request,
                "step": len(steps),
                "position": start + at,
                "proposal_ids": [*own[:accepted], *range(900, 900 + rest)],
                "num_accepted": accepted,
                "emitted_ids": own,
                "target_ids": [*own, *range(700, 700 + rest)],
                **fields,
            }
        )
        at += len(own)
    return steps
