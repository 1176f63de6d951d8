"""A reader follows a trace that is being written."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import spectrace
from spectrace.format.records import present_fields
from spectrace.testing import step_fields
from tests.format.recording_child import STEPS_AT_ONCE, fields_of
from tests.format.test_kill import Nursery, nursery
from tests.strategies import as_read, same

__all__ = ["nursery"]


def wait_for(condition: Callable[[], bool]) -> None:
    """Asks again and again, for as long as a slow machine may need."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_every_step_is_seen_in_order(tmp_path: Path) -> None:
    """Each refresh shows the steps added since the last, and all questions answer for all of them."""
    path = tmp_path / "t.spectrace"
    with (
        spectrace.TraceWriter(path, {}, strict=True, flush_interval=0.001) as writer,
        spectrace.open(path) as trace,
    ):
        assert (trace.state, len(trace), trace.refresh()) == ("recording", 0, 0)
        given = 0
        for many in (1, 3, 200, 2000, 5):
            for number in range(given, given + many):
                writer.step(fields_of(number))
            writer.request(f"described {many}", prompt_ids=[many])
            writer.amend(reported={"steps": many})
            writer.tokens(target={many: f"text {many}"})
            given += many
            assert writer.flush()
            assert trace.refresh() == many
            assert trace.refresh() == 0
            assert len(trace) == given
            assert trace.steps[-1].step == given - 1
            assert [step.step for step in trace] == list(range(given))
            assert trace.counts.steps == given
            assert trace.groups.rows.sum() == given
            assert trace.run_mapping["reported"] == {"steps": many}
            assert trace.token_text(many) == f"text {many}"
            assert trace.requests[-1].prompt_ids == (many,)
            assert trace.state == "recording"
            assert trace.end is None
            assert trace.problems == []
        writer.close()
        assert trace.refresh() == 0
        assert trace.state == "closed"
        assert trace.end is not None
        for number in (0, 3, 203, 204, given - 1):
            assert same(present_fields(trace.steps[number]), as_read(fields_of(number)))
        assert trace.problems == []


def test_the_index_frames_of_a_long_run_are_passed(tmp_path: Path) -> None:
    """A follower that stays, and one that comes late, see what the other sees, over several `indx` frames."""
    path = tmp_path / "t.spectrace"
    with (
        spectrace.TraceWriter(path, {}, strict=True, flush_interval=0.001) as writer,
        spectrace.open(path) as early,
    ):
        for number in range(30_000):
            writer.step(fields_of(number))
            if number % 3000 == 0:
                assert writer.flush()
                early.refresh()
        assert writer.flush()
        early.refresh()
        with spectrace.open(path) as late:
            assert len(early) == len(late) == 30_000
            assert late.counts == early.counts
            assert late.groups.row.tolist()[0] == 0
            assert late.groups.rows.sum() == early.groups.rows.sum() == 30_000
            for number in range(0, 30_000, 997):
                assert early.steps[number].step == late.steps[number].step == number
            assert late.find_rejected(20_000) == early.find_rejected(20_000)
            assert late.requests.names == early.requests.names == ["r0", "r1", "r2"]
        late_counts = early.counts
    with spectrace.open(path) as closed:
        assert closed.counts == late_counts


def test_a_follower_sees_the_writer_die(tmp_path: Path, nursery: Nursery) -> None:
    """State goes from recording to unclosed when another process is killed; its steps stay readable."""
    path = tmp_path / "t.spectrace"
    pid = nursery.start(path, "step", 0.002)
    wait_for(path.exists)
    wait_for(lambda: path.stat().st_size > 1000)
    with spectrace.open(path) as trace:
        wait_for(lambda: trace.refresh() > 0 and len(trace) >= 10 * STEPS_AT_ONCE)
        assert trace.state == "recording"
        seen = len(trace)
        assert [step.step for step in trace] == list(range(seen))
        nursery.kill(pid)
        trace.refresh()
        assert trace.state == "unclosed"
        assert len(trace) >= seen
        assert [step.step for step in trace] == list(range(len(trace)))


def test_a_torn_frame_waits_for_its_end(tmp_path: Path) -> None:
    """A frame that is half written is not shown and no problem; when it is whole it is shown."""
    whole = tmp_path / "whole.spectrace"
    with spectrace.TraceWriter(whole, {}, strict=True) as writer:
        writer.step(step_fields(step=0))
        assert writer.flush()
        first = whole.stat().st_size
        writer.step(step_fields(step=1))
        assert writer.flush()
        data = whole.read_bytes()
    path = tmp_path / "t.spectrace"
    path.write_bytes(data[:first])
    with spectrace.open(path) as trace, path.open("ab", buffering=0) as file:
        for at in range(first, len(data)):
            assert trace.refresh() == 0
            assert len(trace) == 1
            file.write(data[at : at + 1])
        assert trace.refresh() == 1
        assert [step.step for step in trace] == [0, 1]
        assert trace.problems == []


def test_a_flight_recorder_is_followed_over_a_rotation(tmp_path: Path) -> None:
    """A follower of a flight recorder sees the newest steps after the segment it opened was renamed."""
    path = tmp_path / "t.spectrace"
    with (
        spectrace.TraceWriter(path, {}, strict=True, max_bytes=200_000) as writer,
        spectrace.open(path) as trace,
    ):
        for number in range(6000):
            writer.step(fields_of(number))
            if number % 1000 == 999:
                assert writer.flush()
                trace.refresh()
                assert trace.steps[-1].step == number
