"""Recordings of the stand-ins for vLLM's runners: two requests, some engine steps. Imports no vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spectrace_serving.settings import Settings
from spectrace_vllm.recording import attach
from tests.recorders import vllm_fakes as fakes

PROMPTS = {"a-00000000": [1, 2, 3, 11], "b-11111111": [7, 8, 20]}
RUNNERS = (fakes.V1Runner, fakes.V2Runner)


def record(runner: Any, folder: Path, steps: int = 6, **settings: Any) -> Path:
    """Records some engine steps of a runner."""
    recording = attach(fakes.FakeWorker(runner), Settings(out=folder, **settings))
    assert recording is not None
    for _ in range(steps):
        runner.step()
    recording.close()
    return recording.writer.path
