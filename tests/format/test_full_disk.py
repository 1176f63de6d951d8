"""A disk that is full: recording goes on, one warning, nothing lost that is not declared."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spectrace

_CHILD = textwrap.dedent("""
    import json, logging, os, resource, sys, time
    from pathlib import Path
    import numpy as np
    from spectrace.format.writer import TraceWriter
    from spectrace.testing import step_fields

    path, limit, how, ballast = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    warnings = []
    class Keep(logging.Handler):
        def emit(self, record):
            warnings.append(record.getMessage())
    logging.getLogger("spectrace").addHandler(Keep())
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    offered = 0
    def record(rows):
        global offered
        half = rows // 2
        for _ in range(half):
            writer.step(step_fields(request=f"r{offered % 5}", step=offered, draft_logprobs=[0.1, 0.2, 0.3]))
            offered += 1
        number = np.arange(offered, offered + half)
        zeros = np.zeros(half, int)
        writer.steps(half, {"request": [f"b{offered % 7}"] * half, "step": number, "position": number,
            "proposal_ids": np.zeros((half, 3), int), "num_accepted": zeros, "emitted_ids": zeros[:, None]})
        offered += half

    writer = TraceWriter(path, {}, flush_interval=0.001)
    full = None
    while full is None or offered < full + 2000:
        record(40)
        writer.flush()
        if full is None and writer.failed is not None:
            full = offered
    if how == "freed":
        ballast.unlink(missing_ok=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        size = os.stat(path).st_size
        deadline = time.monotonic() + 20
        while os.stat(path).st_size == size and time.monotonic() < deadline:
            time.sleep(0.02)
            record(2)
            writer.flush()
        record(40)
    writer.request("late")
    writer.close()
    print(json.dumps({"offered": offered, "warnings": warnings}))
""")


def record_until_full(path: Path, limit: int, how: str, ballast: Path) -> dict[str, Any]:
    """Records in another process until long after the disk is full."""
    command = [sys.executable, "-c", _CHILD, str(path), str(limit), how, str(ballast)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(path: Path, told: dict[str, Any]) -> spectrace.Trace:
    """What holds in every case: one warning, whole steps in order, and the loss declared exactly."""
    assert len(told["warnings"]) == 1
    assert "recording goes on" in told["warnings"][0]
    trace = spectrace.open(path)
    numbers = [step.step for step in trace]
    assert numbers == sorted(set(numbers))
    assert all(step.request[0] in "rb" for step in trace)
    assert trace.counts.steps == len(trace) == len(numbers) > 0
    assert {gap.reason for gap in trace.gaps} == {"disk full"}
    assert len(trace) + sum(gap.lost for gap in trace.gaps) == told["offered"]
    assert trace.problems == []
    return trace


def test_recording_resumes_when_there_is_room_again(tmp_path: Path) -> None:
    """The gap is declared, steps recorded before and after it are there, and the file is closed."""
    pytest.importorskip("resource")
    path = tmp_path / "t.spectrace"
    told = record_until_full(path, 100_000, "freed", tmp_path / "ballast")
    with check(path, told) as trace:
        assert trace.state == "closed"
        assert trace.steps[-1].step == told["offered"] - 1
        assert trace.requests.get("late") is not None


@pytest.mark.parametrize("limit", [60_000, 100_000])
def test_a_trace_closed_on_a_full_disk_is_readable(tmp_path: Path, limit: int) -> None:
    """What was stored is read, and what was lost is still declared."""
    pytest.importorskip("resource")
    path = tmp_path / "t.spectrace"
    told = record_until_full(path, limit, "full", tmp_path / "ballast")
    with check(path, told):
        assert path.stat().st_size <= limit


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("mount is not installed")
    command = [mount, "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("how", ["freed", "full"])
def test_a_small_file_system_that_fills_up(small_disk: Path, how: str) -> None:
    """The same on a real file system without room, that another file gives back or not."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(100_000))
    path = small_disk / "t.spectrace"
    told = record_until_full(path, 0, how, ballast)
    with check(path, told) as trace:
        if how == "freed":
            assert trace.state == "closed"
            assert trace.steps[-1].step == told["offered"] - 1


def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    """Without room even for the header, recording goes on and the file is no trace."""
    pytest.importorskip("resource")
    path = tmp_path / "t.spectrace"
    told = record_until_full(path, 100, "full", tmp_path / "ballast")
    assert len(told["warnings"]) == 1
    with pytest.raises(spectrace.TraceError):
        spectrace.open(path)
    path.unlink()
    told = record_until_full(path, 100, "freed", tmp_path / "ballast")
    with check(path, told) as trace:
        assert trace.state == "closed"
        assert path.stat().st_size == trace.size_bytes
