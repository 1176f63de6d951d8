"""Records a speculative loop that is written by hand: one call per round, with what the round has in hand.

    with spectrace_loop.record("run.spectrace") as recorder:
        request = recorder.request(prompt_ids)
        ...
        request.step(proposal_ids, target_logits, emitted_ids)

Owns no loop and no hook: the caller says what happened, the recorder reduces it and writes it down. Reads
nothing back and judges nothing.
"""

from __future__ import annotations

from spectrace_loop.recorder import LoopRecorder, LoopRequest

record = LoopRecorder
"""Short form: ``with record(path):``."""

__all__ = ["LoopRecorder", "LoopRequest", "record"]
