"""The flight recorder keeps header, names, texts and the newest steps within its budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spectrace
from spectrace.errors import RecorderError
from spectrace.format.outfile import older_segment
from spectrace.testing import step_fields

BUDGET = 200_000


def fields_of(number: int) -> dict[str, Any]:
    """The step that has a number; token ids change slowly, so that texts are asked for again."""
    token = 1000 + number // 50
    return step_fields(
        request=f"r{number // 100}",
        step=number,
        proposal_ids=[token, token + 1, token + 2],
        draft_logprobs=[-0.5 * number, -1.0, -2.0],
        num_accepted=number % 4,
    )


def arrays_of(first: int, num_rows: int) -> dict[str, Any]:
    """Steps as arrays."""
    number = np.arange(first, first + num_rows)
    return {
        "request": [f"r{n // 100}" for n in number.tolist()],
        "step": number,
        "position": number,
        "proposal_ids": number[:, None] + np.arange(3),
        "num_accepted": number % 4,
        "emitted_ids": number[:, None],
    }


def size_of(path: Path) -> int:
    """Bytes of both segments."""
    older = older_segment(path)
    return path.stat().st_size + (older.stat().st_size if older.exists() else 0)


@pytest.mark.parametrize("how", ["step", "steps", "bursts"])
def test_the_newest_steps_are_kept_within_the_budget(tmp_path: Path, how: str) -> None:
    """Over many rotations: never more than the budget, contiguous newest steps, the rest declared exactly."""
    path = tmp_path / "t.spectrace"
    offered, largest = 0, 0
    writer = spectrace.TraceWriter(path, {"method": "eagle"}, strict=True, max_bytes=BUDGET)
    while offered < 20_000:
        if how == "steps":
            writer.steps(64, arrays_of(offered, 64))
            offered += 64
        else:
            many = 3000 if how == "bursts" else 100
            for number in range(offered, offered + many):
                writer.step(fields_of(number))
            offered += many
        assert writer.flush()
        largest = max(largest, size_of(path))
    writer.close()
    largest = max(largest, size_of(path))
    assert largest <= BUDGET
    with spectrace.open(path) as trace:
        assert len(trace.paths) == 2
        assert trace.state == "closed"
        assert trace.run.method == "eagle"
        numbers = [step.step for step in trace]
        assert numbers == list(range(offered - len(numbers), offered))
        assert [step.step for step in trace.steps[:]] == numbers
        assert trace.columns("step").tolist() == numbers
        assert [step.request for step in trace] == [f"r{number // 100}" for number in numbers]
        assert [(gap.lost, gap.reason) for gap in trace.gaps] == [(offered - len(numbers), "rotated")]
        assert trace.counts.steps == len(numbers)
        assert trace.size_bytes >= BUDGET * 0.4, "most of the budget is used"
        assert trace.problems == []


def test_names_prompts_and_texts_outlive_rotation(tmp_path: Path) -> None:
    """A request described long ago, an amendment and every token's text are in the newest segments."""
    path = tmp_path / "t.spectrace"
    writer = spectrace.TraceWriter(
        path, {}, strict=True, max_bytes=BUDGET, token_text=lambda space, token: f"{space} {token}"
    )
    writer.request("long", prompt_ids=[1, 2, 3])
    writer.request("long", prompt_digest="d")
    writer.amend(sampling={"temperature": 0.5})
    for number in range(12_000):
        writer.step({**fields_of(number), "request": "long" if number % 2 else f"r{number // 100}"})
        if number % 500 == 0:
            assert writer.flush()
    writer.close()
    with spectrace.open(path) as trace:
        assert len(trace.paths) == 2
        assert len(trace) < 12_000
        assert trace.run_mapping["sampling"] == {"temperature": 0.5}
        found = trace.requests.get("long")
        assert found is not None
        assert found.prompt_ids == (1, 2, 3)
        assert found.prompt_digest == "d"
        assert len(trace.requests.names) == len(set(trace.requests.names))
        for step in trace:
            assert all(trace.token_text(token or 0) == f"target {token}" for token in step.proposal_ids)
            assert trace.requests.get(step.request) is not None


def test_each_segment_opens_alone(tmp_path: Path) -> None:
    """The older segment is a trace of its own, and is not shown twice when both are named."""
    path = tmp_path / "t.spectrace"
    with spectrace.TraceWriter(path, {}, strict=True, max_bytes=BUDGET) as writer:
        for number in range(6000):
            writer.step(fields_of(number))
    older = older_segment(path)
    with spectrace.open(older) as trace:
        assert [step.step for step in trace] == list(range(trace.steps[0].step, trace.steps[-1].step + 1))
        older_steps = len(trace)
    with spectrace.open(path) as trace:
        both = [step.step for step in trace]
        assert len(both) > older_steps
    for named in ([older, path], [path, older], [path, path]):
        with spectrace.open(named) as trace:
            assert [step.step for step in trace] == both
    older.unlink()
    with spectrace.open(path) as trace:
        assert [step.step for step in trace] == both[older_steps:]


def test_a_segment_of_another_run_is_left_out(tmp_path: Path) -> None:
    """A leftover ``.1`` of an earlier run is not mixed in; a damaged one is a problem, not an error."""
    path, other = tmp_path / "t.spectrace", tmp_path / "other.spectrace"
    for at in (path, other):
        with spectrace.TraceWriter(at, {}, strict=True, max_bytes=BUDGET) as writer:
            for number in range(6000):
                writer.step(fields_of(number))
    older_segment(other).replace(older_segment(path))
    with spectrace.open(path) as trace:
        assert trace.paths == (path,)
    older_segment(path).write_bytes(b"no trace")
    with spectrace.open(path) as trace:
        assert trace.paths == (path,)
        assert any("older segment" in problem for problem in trace.problems)


def test_losses_in_a_dropped_segment_stay_declared(tmp_path: Path) -> None:
    """Malformed steps that were declared in a segment are still accounted for when it is dropped."""
    path = tmp_path / "t.spectrace"
    writer = spectrace.TraceWriter(path, {}, max_bytes=BUDGET)
    for number in range(10_000):
        writer.step(fields_of(number) if number % 10 else {"request": "r", "step": number})
        if number % 100 == 0:
            assert writer.flush()
    writer.close()
    with spectrace.open(path) as trace:
        assert len(trace) + sum(gap.lost for gap in trace.gaps) == 10_000


def test_a_killed_flight_recorder_opens_as_one(tmp_path: Path) -> None:
    """Without a clean end both segments are read, and the trace is unclosed."""
    path, copy = tmp_path / "t.spectrace", tmp_path / "copy.spectrace"
    with spectrace.TraceWriter(path, {}, strict=True, max_bytes=BUDGET) as writer:
        for number in range(6000):
            writer.step(fields_of(number))
        assert writer.flush()
        copy.write_bytes(path.read_bytes())
        older_segment(copy).write_bytes(older_segment(path).read_bytes())
    with spectrace.open(copy) as trace:
        assert trace.state == "unclosed"
        assert len(trace.paths) == 2
        assert [step.step for step in trace][-1] == 5999


def test_a_budget_smaller_than_the_header_is_refused(tmp_path: Path) -> None:
    """The constructor says how large the budget must be."""
    with pytest.raises(RecorderError, match="max_bytes must be at least"):
        spectrace.TraceWriter(tmp_path / "t.spectrace", {"x": "y" * 10_000}, max_bytes=20_000)
    assert list(tmp_path.iterdir()) == []


def test_a_lost_folder_does_not_stop_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When the file is gone at a rotation, recording goes on or says once that it cannot."""
    folder = tmp_path / "gone"
    folder.mkdir()
    path = folder / "t.spectrace"
    writer = spectrace.TraceWriter(path, {}, max_bytes=BUDGET)
    path.unlink()
    folder.rmdir()
    for number in range(6000):
        writer.step(fields_of(number))
    writer.close()
    assert len(caplog.records) == 1
    assert writer.failed is not None
