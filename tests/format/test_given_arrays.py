"""Arrays given to `TraceWriter.steps` are copied by the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spectrace
from spectrace import TraceWriter
from spectrace.errors import RecorderError


def arrays() -> dict[str, Any]:
    """Two steps of an engine."""
    return {
        "request": ["a", "b"],
        "step": np.array([0, 0]),
        "position": np.array([7, 9], np.int32),
        "proposal_ids": np.array([[1, 2], [3, 4]]).T[::-1].T,  # not contiguous
        "draft_logprobs": np.array([[-0.5, -1.5], [-2.5, -3.5]], np.float32),
        "num_accepted": np.array([0, 2], np.uint8),
        "emitted_ids": (np.array([5, 3, 4, 6]), np.array([1, 3])),
        "final_kind": np.array(["corrected", "bonus"]),
    }


def test_an_engine_may_reuse_its_arrays(tmp_path: Path) -> None:
    """What the engine writes into its arrays after the call is not recorded."""
    given = arrays()
    expected = [[int(i) for i in row] for row in given["proposal_ids"]]
    with TraceWriter(tmp_path / "run.spectrace", {}, flush_interval=0.2, strict=True) as writer:
        writer.steps(2, given)
        for value in given.values():
            for part in value if isinstance(value, tuple) else (value,):
                part[:] = ["z", "z"] if isinstance(part, list) else part[0]
        given.clear()
    with spectrace.open(tmp_path / "run.spectrace") as trace:
        first, second = trace.steps
        assert [first.request, second.request] == ["a", "b"]
        assert [list(first.proposal_ids), list(second.proposal_ids)] == expected
        assert [first.emitted_ids, second.emitted_ids] == [(5,), (3, 4, 6)]
        assert [first.draft_logprobs, second.draft_logprobs] == [(-0.5, -1.5), (-2.5, -3.5)]
        assert [first.final_kind, second.final_kind] == ["corrected", "bonus"]
        assert [first.position, second.num_accepted] == [7, 2]


def test_steps_without_proposal_have_empty_arrays(tmp_path: Path) -> None:
    """A batch of prefills, whose proposals are arrays of no column, is recorded."""
    given = arrays() | {
        "proposal_ids": np.zeros((2, 0), np.int64),
        "draft_logprobs": np.zeros((2, 0), np.float32),
        "num_accepted": np.zeros(2, np.int64),
    }
    with TraceWriter(tmp_path / "run.spectrace", {}, strict=True) as writer:
        writer.steps(2, given)
    with spectrace.open(tmp_path / "run.spectrace") as trace:
        assert [step.proposal_ids for step in trace.steps] == [(), ()]


def test_an_array_of_objects_is_refused_and_counted(tmp_path: Path) -> None:
    """An array of Python objects cannot be copied as bytes: its steps are declared lost, with the reason."""
    given = arrays() | {"final_kind": np.array(["corrected", "bonus"], object)}
    writer = TraceWriter(tmp_path / "run.spectrace", {}, strict=True)
    writer.steps(2, given)
    with pytest.raises(RecorderError, match="final_kind must be a list"):
        writer.close()
    with spectrace.open(tmp_path / "run.spectrace") as trace:
        assert len(trace.steps) == 0
        assert sum(gap.lost for gap in trace.gaps) == 2
