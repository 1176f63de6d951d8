"""Opening, counting and jumping read a bounded part of a file, however long it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spectrace
from spectrace.format.repair import repair

SHORT, LONG = 10_000, 200_000


def arrays_of(first: int, num_rows: int) -> dict[str, Any]:
    """Steps whose fields follow from their numbers, and that do not compress well."""
    number = np.arange(first, first + num_rows)
    noise = np.random.default_rng(first).random((num_rows, 4), np.float32)
    return {
        "request": [f"r{n // 500 % 64}" for n in number.tolist()],
        "step": number,
        "position": 3 * number,
        "proposal_ids": number[:, None] * 7 % 50_000 + np.arange(4),
        "num_accepted": number % 5,
        "emitted_ids": (np.repeat(number, number % 5 + 1), number % 5 + 1),
        "target_logprobs": -noise,
    }


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A short and a long trace: closed, killed and compacted."""
    folder = tmp_path_factory.mktemp("cost")
    paths: dict[str, Path] = {}
    for name, size in (("short", SHORT), ("long", LONG)):
        path = folder / f"{name}.spectrace"
        with spectrace.TraceWriter(path, {}, strict=True, flush_interval=0.001) as writer:
            for first in range(0, size, 250):
                writer.steps(250, arrays_of(first, 250))
                # However late the writing thread is, no frame is large.
                if first % 1000 == 0:
                    assert writer.flush()
            assert writer.flush()
            killed = folder / f"killed {name}.spectrace"
            # More than the index that may stand behind the last steps.
            killed.write_bytes(path.read_bytes()[:-20_000])
        repair(path, folder / f"compact {name}.spectrace", compact=True)
        paths |= {f"{kind}{name}": folder / f"{kind}{name}.spectrace" for kind in ("", "killed ", "compact ")}
    return paths


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Bytes read since the last call."""
    real, read = os.pread, [0]

    def counted(fd: int, size: int, offset: int) -> bytes:
        data = real(fd, size, offset)
        read[0] += len(data)
        return data

    def since() -> int:
        found, read[0] = read[0], 0
        return found

    monkeypatch.setattr(os, "pread", counted)
    return since


@pytest.mark.parametrize("kind", ["", "compact "])
def test_opening_a_closed_trace_reads_the_same_at_any_length(
    traces: dict[str, Path], bytes_read: Callable[[], int], kind: str
) -> None:
    """Header, counts and state come from a few kilobytes, of a long trace as of one twenty times shorter."""
    costs = []
    for name in ("short", "long"):
        with spectrace.open(traces[kind + name]) as trace:
            assert trace.counts.steps == len(trace) == (SHORT if name == "short" else LONG)
            assert trace.state == "closed"
            assert trace.run.created is not None
            costs.append(bytes_read())
    assert costs[1] <= costs[0] + 200 < 16_000


def test_opening_a_killed_trace_reads_its_end(traces: dict[str, Path], bytes_read: Callable[[], int]) -> None:
    """Without a tail the last megabytes are read, and no more of a longer file."""
    with spectrace.open(traces["killed long"]) as trace:
        assert trace.state == "unclosed"
        assert LONG - 5000 <= trace.counts.steps == len(trace) < LONG
        assert bytes_read() <= 6 << 20 < traces["killed long"].stat().st_size


@pytest.mark.parametrize("kind", ["", "compact ", "killed "])
def test_one_step_reads_little(traces: dict[str, Path], bytes_read: Callable[[], int], kind: str) -> None:
    """A jump reads the index once and then a frame; a screenful around it reads nothing more."""
    with spectrace.open(traces[kind + "long"]) as trace:
        assert len(trace.groups) > 20
        bytes_read()
        for number in (123_456, 77, len(trace) - 1000, 100_000):
            assert trace.steps[number].step == number
            assert bytes_read() <= 300_000
            assert [step.step for step in trace.steps[number : number + 40]] == list(
                range(number, number + 40)
            )
            assert bytes_read() <= 300_000


def test_groups_of_the_index_are_small(traces: dict[str, Path]) -> None:
    """The index has a group for about every 64 KiB, whose counts add up to the whole."""
    with spectrace.open(traces["long"]) as trace:
        groups = trace.groups
        spans = np.diff(np.append(groups.offset, trace.size_bytes).astype(np.int64))
        assert spans.max() < 300_000
        assert groups.rows.sum() == LONG
        assert groups.accepted.sum() == trace.counts.accepted
        assert groups.row.tolist() == [0, *np.cumsum(groups.rows)[:-1].tolist()]
