"""Compaction groups steps although a recorder writes other records between them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import spectrace
from spectrace import TraceWriter
from spectrace.format.jsonl import export_lines
from spectrace.format.repair import repair


def test_records_between_steps_do_not_keep_them_apart(tmp_path: Path) -> None:
    """Steps that were written one by one, with token texts and requests between them, share one frame."""
    live, packed = tmp_path / "live.spectrace", tmp_path / "packed.spectrace"
    with TraceWriter(live, {}, flush_interval=0.001, token_text=lambda space, i: f"{space}{i}") as writer:
        for number in range(20):
            name = f"r{number // 5}"
            writer.request(name, prompt_digest=f"digest of {name}")
            writer.step(
                request=name,
                step=number % 5,
                position=number,
                proposal_ids=[number],
                draft_ids=[number + 100],
                num_accepted=1,
                emitted_ids=[number, number + 1],
            )
            writer.flush()
    repair(live, packed, compact=True)
    with spectrace.open(live) as before, spectrace.open(packed) as after:
        kinds = Counter(frame.kind for part in after.parts for frame in part.frames())
        assert kinds[b"STEP"] == kinds[b"toks"] == 1
        lines = [[line for line in export_lines(trace) if '"step"' in line] for trace in (before, after)]
        assert lines[0] == lines[1]
        texts = [
            [(t.token_text(i), t.token_text(i + 100, draft=True)) for i in range(21)] for t in (before, after)
        ]
        assert texts[0] == texts[1]
        assert [r.prompt_digest for r in before.requests] == [r.prompt_digest for r in after.requests]
        assert after.state == "closed"
