"""The recording thread: no exception, no system call, no lost neighbour, in threads and after a fork."""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spectrace
from spectrace.errors import RecorderError, UsageError
from spectrace.format.fields import FIELDS
from spectrace.testing import step_fields, write_trace


class Nasty:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("nasty")

    def __len__(self) -> int:
        raise RuntimeError("nasty")

    def __iter__(self) -> Any:
        raise RuntimeError("nasty")

    def __index__(self) -> int:
        raise RuntimeError("nasty")


def _endless() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    return loop


GARBAGE: list[Any] = [
    None,
    5,
    -1,
    2**70,
    1.5,
    math.nan,
    "text",
    "\ud800",
    b"bytes",
    True,
    [],
    {},
    (),
    [None],
    [[]],
    {1: 2},
    {"a": {}},
    object(),
    Nasty(),
    _endless(),
    np.zeros((2, 2)),
    np.array([object()]),
    np.float16(1),
    np.zeros(0),
    range(3),
    lambda: 1 / 0,
    lambda: None,
    {"request": 5},
    [{"boundary": 1}],
    np.ma.masked,
    np.datetime64("now"),
    type,
]


@pytest.mark.parametrize("value", GARBAGE, ids=lambda value: type(value).__name__)
def test_no_call_raises_for_garbage(tmp_path: Path, value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is given to whatever call, nothing is raised and the good steps around it are kept."""
    caplog.set_level(logging.WARNING)
    writer = spectrace.TraceWriter(tmp_path / "t.spectrace", {})
    calls: list[Callable[[], object]] = [
        lambda: writer.step(value),
        lambda: writer.step(lambda: value),
        lambda: writer.steps(value, value),
        lambda: writer.steps(3, value),
        lambda: writer.steps(2, lambda: value),
        lambda: writer.steps(1, lambda: (1, value)),
        lambda: writer.steps(value, {"request": ["r0"]}),
        lambda: writer.request(value, prompt_ids=value),
        lambda: writer.amend(value=value),
        lambda: writer.tokens(target=value, draft=value),
        lambda: writer.reference(boundary=value, rows=value),
        lambda: writer.gap(lost=value, reason=value),
    ]
    fields = step_fields()
    calls += [partial(writer.step, {**fields, field.name: value}) for field in FIELDS]
    for number, call in enumerate(calls):
        writer.step(step_fields(request="good", step=number))
        call()
    writer.flush()
    writer.close(value)
    assert len(caplog.records) <= 1
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        good = [step.step for step in trace if step.request == "good" and step.position == 1]
        assert trace.state == "closed"
        assert trace.problems == []
        assert set(range(len(calls))) <= set(good)
        list(trace.requests), trace.run, trace.references, trace.gaps, trace.token_text(1)
        assert trace.problems == [] or all("must be" in problem for problem in trace.problems)


@given(
    st.lists(
        st.sampled_from(["good", "bad", "nothing", "raises", "batch", "ragged lie", "empty"]), max_size=12
    )
)
def test_every_step_offered_is_stored_or_declared(kinds: list[str]) -> None:
    """Good steps are stored, in order; each malformed one is counted, and nothing else is lost."""
    good: list[int] = []
    lost = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.spectrace"
        with spectrace.TraceWriter(path, {}) as writer:
            for number, kind in enumerate(kinds):
                if kind == "good":
                    writer.step(step_fields(step=number, request=f"r{number}"))
                    good.append(number)
                elif kind == "bad":
                    writer.step(step_fields(step=number, request=f"r{number}", position="x"))
                    lost += 1
                elif kind == "nothing":
                    writer.step(lambda: None)
                elif kind == "raises":
                    writer.step(lambda: 1 / 0)
                    lost += 1
                elif kind == "empty":
                    writer.steps(0, _arrays(0, number))
                elif kind == "batch":
                    writer.steps(2, _arrays(2, number))
                    good += [number, number]
                else:
                    writer.steps(2, {**_arrays(2, number), "parents": (np.zeros(5, int), np.array([1, 1]))})
                    lost += 2
        with spectrace.open(path) as trace:
            assert [step.step for step in trace] == good
            assert [trace.requests.get(step.request) is not None for step in trace] == [True] * len(good)
            assert sum(gap.lost for gap in trace.gaps) == lost
            assert {gap.reason for gap in trace.gaps} <= {"malformed"}
            assert trace.problems == []


def _arrays(num_rows: int, number: int) -> dict[str, Any]:
    return {
        "request": [f"b{number}"] * num_rows,
        "step": np.full(num_rows, number),
        "position": np.zeros(num_rows, int),
        "proposal_ids": np.zeros((num_rows, 2), int),
        "num_accepted": np.zeros(num_rows, int),
        "emitted_ids": np.zeros((num_rows, 1), int),
    }


def test_one_warning_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A thousand malformed steps make one line in the log, and `failed` says it as well."""
    with spectrace.TraceWriter(tmp_path / "t.spectrace", {}) as writer:
        for _ in range(1000):
            writer.step(position="x")
    assert len(caplog.records) == 1
    assert writer.failed is not None
    assert "request must be given" in writer.failed


def test_a_strict_writer_raises_at_close(tmp_path: Path) -> None:
    """A strict writer keeps its fault until it is closed, and then raises it."""
    writer = spectrace.TraceWriter(tmp_path / "t.spectrace", {}, strict=True)
    writer.step(step_fields(position="x"))
    assert writer.flush()
    with pytest.raises(RecorderError, match="position must be an integer"):
        writer.close()
    writer.close()


def test_an_existing_file_is_refused(tmp_path: Path) -> None:
    """A trace is never overwritten."""
    path = write_trace(tmp_path / "t.spectrace", [{}])
    before = path.read_bytes()
    with pytest.raises(RecorderError, match="exists already"):
        spectrace.TraceWriter(path, {})
    with pytest.raises(RecorderError, match="cannot be created"):
        spectrace.TraceWriter(tmp_path / "nowhere" / "t.spectrace", {})
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "run", [{"x": object()}, {"x": 2**80}, {"x": "a" * (5 << 20)}], ids=["object", "huge", "large"]
)
def test_a_header_that_cannot_be_stored_is_refused(tmp_path: Path, run: Any) -> None:
    """The constructor says what is wrong with the header, and leaves no file behind."""
    with pytest.raises(RecorderError, match="run"):
        spectrace.TraceWriter(tmp_path / "t.spectrace", run)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run", [["x"], {"schema": 99}, "run"], ids=["list", "schema", "text"])
def test_a_header_of_another_kind_is_refused(tmp_path: Path, run: Any) -> None:
    """A run that is no mapping, or of a schema that is not written here, is a mistake of the caller."""
    with pytest.raises(UsageError, match="run"):
        spectrace.TraceWriter(tmp_path / "t.spectrace", run)
    assert list(tmp_path.iterdir()) == []


def test_large_records_are_split_or_refused(tmp_path: Path) -> None:
    """A whole vocabulary is stored; a step, a name or a text beyond the limits is refused, and said so."""
    vocabulary = dict.fromkeys(range(200000), "x" * 40)
    writer = spectrace.TraceWriter(tmp_path / "t.spectrace", {})
    writer.tokens(target=vocabulary)
    writer.step(step_fields(step=1))
    writer.step(step_fields(step=2, draft_logprobs=np.random.default_rng(0).random(700_000)))
    writer.step(step_fields(step=3, request="n" * 70_000))
    writer.tokens(target={7: "y" * 70_000})
    writer.request("long", prompt_ids=list(range(2_000_000, 3_000_000)))
    writer.step(step_fields(step=4, request="long"))
    writer.close()
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        assert [step.step for step in trace] == [1, 4]
        assert trace.steps[1].request == "long"
        assert sorted((gap.lost, gap.reason) for gap in trace.gaps) == [(1, "malformed"), (1, "too large")]
        assert trace.token_text(199_999) == trace.token_text(7) == "x" * 40
        assert trace.problems == []


def test_many_threads_lose_nothing(tmp_path: Path) -> None:
    """Eight threads record at once; every step is there, each thread's own in its order."""
    path = tmp_path / "t.spectrace"
    with spectrace.TraceWriter(path, {}, strict=True, flush_interval=0.002) as writer:

        def work(thread: int) -> None:
            for number in range(0, 600, 3):
                writer.step(step_fields(request=f"t{thread}", step=number))
                writer.steps(
                    2,
                    {
                        **_arrays(2, 0),
                        "request": [f"t{thread}"] * 2,
                        "step": np.array([number + 1, number + 2]),
                    },
                )

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with spectrace.open(path) as trace:
        assert len(trace) == 8 * 600
        assert trace.gaps == []
        for number in range(8):
            assert [step.step for step in trace if step.request == f"t{number}"] == list(range(600))


def test_interleaved_requests_keep_their_order(tmp_path: Path) -> None:
    """Steps of many requests, mixed, are read in the order in which they were given."""
    random = np.random.default_rng(0)
    order = random.integers(0, 50, 3000).tolist()
    write_trace(
        tmp_path / "t.spectrace", [step_fields(request=f"r{name}", step=at) for at, name in enumerate(order)]
    )
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        assert [step.request for step in trace] == [f"r{name}" for name in order]
        assert trace.columns("request").tolist() == [f"r{name}" for name in order]
        assert trace.columns("step").tolist() == list(range(3000))
        assert trace.requests.names == [f"r{name}" for name in dict.fromkeys(order)]


def test_an_overfull_queue_is_declared(tmp_path: Path) -> None:
    """Steps beyond the queue's limit are dropped, and their number is in the trace."""
    writer = spectrace.TraceWriter(tmp_path / "t.spectrace", {}, flush_interval=60)
    arrays = _arrays(1000, 0)
    for _ in range(100):
        writer.steps(1000, arrays)
    writer.close()
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        assert 0 < len(trace) < 100_000
        assert [(gap.lost, gap.reason) for gap in trace.gaps] == [(100_000 - len(trace), "queue full")]


def test_close_does_not_wait_for_the_interval(tmp_path: Path) -> None:
    """``flush`` and ``close`` wake the writing thread, however long its interval is."""
    writer = spectrace.TraceWriter(tmp_path / "t.spectrace", {}, strict=True, flush_interval=3600)
    writer.step(step_fields())
    assert writer.flush()
    writer.step(step_fields())
    writer.close()
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        assert len(trace) == 2


def test_an_abandoned_trace_is_removed(tmp_path: Path) -> None:
    """``abandon`` leaves no file, and a later ``close`` is harmless."""
    writer = spectrace.TraceWriter(tmp_path / "t.spectrace", {}, strict=True)
    writer.step(step_fields())
    writer.abandon()
    writer.close()
    assert list(tmp_path.iterdir()) == []


# --- system calls ------------------------------------------------------------------------------

_TRACED = textwrap.dedent("""
    import os, sys
    import numpy as np
    from spectrace.format.writer import TraceWriter
    from spectrace.testing import step_fields

    writer = TraceWriter(sys.argv[1], {}, flush_interval=3600)
    fields = step_fields()
    arrays = {
        "request": ["r0"] * 4, "step": np.arange(4), "position": np.arange(4),
        "num_accepted": np.zeros(4, int),
        "proposal_ids": np.zeros((4, 3), int),
        "emitted_ids": (np.zeros(8, int), np.full(4, 2)),
    }

    def record(times):
        for number in range(times):
            writer.step(fields)
            writer.step(
                request="r1", step=number, position=1, proposal_ids=[], num_accepted=0, emitted_ids=[1]
            )
            writer.step(lambda: fields)
            writer.steps(4, arrays)

    record(10)
    os.open("/begin", os.O_RDONLY) if os.path.exists("/begin") else None
    record(2500)
    os.path.exists("/end")
    os._exit(0)
""")

_OF_MEMORY = {"mmap", "munmap", "brk", "mremap", "madvise"}
"""Calls by which the allocator grows; the queue needs memory."""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_recording_makes_no_system_call(tmp_path: Path) -> None:
    """Ten thousand calls of ``step`` and ``steps`` make no system call but for memory."""
    log = tmp_path / "strace.log"
    command = ["strace", "-f", "-o", str(log), sys.executable, "-c", _TRACED, str(tmp_path / "t.spectrace")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not log.exists() or "ptrace" in done.stderr:
        pytest.skip(f"strace cannot trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    text = log.read_text()
    begin, end = text.index('"/begin"'), text.index('"/end"')
    lines = text[begin:end].splitlines()[1:-1]
    thread = text[: text.index('"/begin"')].rsplit("\n", 1)[-1].split()[0]
    calls = [match[1] for line in lines if (match := re.match(rf"{thread} +(\w+)\(", line))]
    assert set(calls) <= _OF_MEMORY, sorted(set(calls) - _OF_MEMORY)


# --- fork --------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_silent(tmp_path: Path) -> None:
    """A child's calls do nothing, its exit and its ``abandon`` leave the parent's file alone."""
    path = tmp_path / "t.spectrace"
    with spectrace.TraceWriter(path, {}, strict=True, flush_interval=0.002) as writer:
        writer.step(step_fields(step=0))
        assert writer.flush()
        for how in ("close", "abandon", "flush"):
            child = os.fork()
            if child == 0:
                try:
                    for number in range(100):
                        writer.step(step_fields(step=1000 + number))
                        writer.steps(2, _arrays(2, 1000))
                    getattr(writer, how)()
                finally:
                    os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        writer.step(step_fields(step=1))
    with spectrace.open(path) as trace:
        assert [step.step for step in trace] == [0, 1]
        assert trace.state == "closed"
        assert trace.problems == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_hold_the_file(tmp_path: Path) -> None:
    """When the recorder is gone the trace is unclosed, even while a child that it forked lives on."""
    path = tmp_path / "t.spectrace"
    ready, release = os.pipe(), os.pipe()
    recorder = os.fork()
    if recorder == 0:
        try:
            writer = spectrace.TraceWriter(path, {})
            writer.step(step_fields())
            writer.flush()
            if os.fork() == 0:
                # Without this end of its own it also leaves when the test fails.
                os.close(release[1])
                os.write(ready[1], b".")
                os.read(release[0], 1)
        finally:
            os._exit(0)
    os.close(ready[1])
    os.read(ready[0], 1)
    os.waitpid(recorder, 0)
    try:
        with spectrace.open(path) as trace:
            assert trace.state == "unclosed"
            assert len(trace) == 1
    finally:
        for fd in (ready[0], *release):
            os.close(fd)


def test_abandon_after_close_keeps_the_trace(tmp_path: Path) -> None:
    """A trace that was closed is finished: abandoning its writer later removes nothing."""
    path = write_trace(tmp_path / "run.spectrace", [{}])
    with spectrace.TraceWriter(tmp_path / "other.spectrace", {}) as writer:
        writer.step(step_fields())
    writer.abandon()
    assert path.exists()
    assert writer.path.exists()


def test_a_deferred_step_that_exits_costs_only_its_group(tmp_path: Path) -> None:
    """Even SystemExit from a recorder's code on the writing thread leaves later steps recorded."""

    def leave() -> None:
        raise SystemExit(1)

    path = tmp_path / "run.spectrace"
    with spectrace.TraceWriter(path, {}) as writer:
        writer.step(leave)
        assert writer.flush()
        writer.step(step_fields(step=1))
    with spectrace.open(path) as trace:
        assert [step.step for step in trace] == [1]
        assert sum(gap.lost for gap in trace.gaps) == 1


@pytest.mark.parametrize("interval", [0, -1, float("nan"), 1e30])
def test_an_interval_that_cannot_be_waited_for_is_refused(tmp_path: Path, interval: float) -> None:
    """A flush interval out of range is refused before a file is made."""
    with pytest.raises(spectrace.errors.UsageError):
        spectrace.TraceWriter(tmp_path / "run.spectrace", {}, flush_interval=interval)
    assert not list(tmp_path.iterdir())
