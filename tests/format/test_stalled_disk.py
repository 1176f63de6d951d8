"""A disk that does not answer: the run goes on, `close` gives up in time, what waits is bounded."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.format import writer as writing
from spectrace.testing import step_fields


def test_close_gives_up_on_a_disk_that_never_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, the steps written before can be read, and steps given meanwhile cost no wait."""
    path, again, write = tmp_path / "run.spectrace", threading.Event(), os.pwrite
    stalled = threading.Event()
    monkeypatch.setattr(writing, "PATIENCE_SECONDS", 0.1)
    writer = spectrace.TraceWriter(path, {}, flush_interval=0.001)
    writer.step(step_fields(step=0))
    assert writer.flush(60)

    def waiting(*given: Any) -> int:
        stalled.set()
        again.wait(60)
        return write(*given)

    monkeypatch.setattr(os, "pwrite", waiting)
    writer.step(step_fields(step=1))
    assert stalled.wait(60)
    writer.step(step_fields(step=2))
    writer.close()
    assert [record.getMessage() for record in caplog.records] == [writer.failed]
    assert "has not answered" in str(writer.failed)
    with spectrace.open(path) as trace:
        assert [step.step for step in trace] == [0]
    monkeypatch.setattr(os, "pwrite", write)
    again.set()
    writer._thread.join()
