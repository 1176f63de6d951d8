"""Recordings of SGLang's stand-in: two requests, some rounds. Imports no SGLang."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spectrace_serving.settings import Settings
from spectrace_sglang.recording import attach
from tests.recorders import sglang_fakes as fakes

PROMPTS = {"a": [1, 2, 3, 11], "b": [7, 8, 20]}


def scheduler(topk: int = 1, **options: Any) -> Any:
    """A scheduler with two requests."""
    return fakes.Scheduler([fakes.Request(name, ids) for name, ids in PROMPTS.items()], topk, **options)


def record(live: Any, folder: Path, rounds: int = 6, **settings: Any) -> Path:
    """Records the prompts and some rounds of a scheduler."""
    recording = attach(live, Settings(out=folder, **settings), [])
    assert recording is not None
    live.around = lambda name: getattr(recording.follower, name)
    live.prefill()
    for _ in range(rounds):
        live.round()
    recording.close()
    live.around = lambda name: None
    assert recording.writer.failed is None
    return recording.writer.path


def parents_in(step: Any) -> list[int]:
    """Parents of a step's nodes; a chain leaves them out."""
    return list(step.parents) if step.parents is not None else list(range(-1, len(step.proposal_ids) - 1))
