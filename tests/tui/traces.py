"""Traces for the viewer's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spectrace import TraceWriter
from spectrace.testing import step_fields

WORDS = [" the", " quick", " brown", " fox", " dog", "ing", " 世界", ".\n", "  ", " naïve"]
"""Texts of the tokens 100, 101, ..."""
K = 3


def made_step(row: int) -> dict[str, Any]:
    """A step whose every value follows from its number: row % 4 tokens of three are accepted."""
    accepted = row % (K + 1)
    proposal = [100 + (row + i) % len(WORDS) for i in range(K)]
    own = 100 + (row * 7 + 5) % len(WORDS)
    return step_fields(
        request=f"req-{row // 10:03d}",
        step=row % 10,
        position=10 + row,
        proposal_ids=proposal,
        draft_ids=[token - 100 for token in proposal],
        num_accepted=accepted,
        emitted_ids=[*proposal[:accepted], own],
        target_ids=[*proposal[:accepted], own, *[102] * (K - accepted)],
        draft_logprobs=[-0.5, -0.25, -1.5],
        target_logprobs=[-0.125, -2.0, -3.0],
        target_ranks=[1, 2, 77],
        target_gaps=[0.5, 1.0, 1.5, 2.0],
        draft_top=[[[0, -0.5], [1, -1.0]]] * K,
        target_top=[[[103, -0.25], [104, -1.25]]] * (K + 1),
        final_kind="bonus" if accepted == K else "corrected",
        draft_kv_length=9,
        target_kv_length=10,
        draft_ns=1_000_000,
        verify_ns=2_000_000,
        step_ns=3_500_000,
        started_ns=row * 4_000_000,
        taps=[{"boundary": 3, "shape": [1, 4, 16], "dtype": "float32", "rms": 1.5}],
    )


def make_trace(path: Path, steps: int, *, texts: dict[int, str] | None = None, **changes: Any) -> Path:
    """Writes a closed trace of made steps; `changes` override fields of all of them."""
    run = {"method": "draft_model", "vocab_map": {"source": "checkpoint"}}
    given = texts if texts is not None else dict(enumerate(WORDS, 100))
    with TraceWriter(path, run, strict=True) as writer:
        writer.tokens(target=given, draft={token - 100: text for token, text in given.items()})
        for row in range(steps):
            writer.step({**made_step(row), **changes})
    return path
