"""Files of several ranks open as one run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.errors import TraceError
from spectrace.testing import step_fields, write_trace


@pytest.fixture
def ranks(tmp_path: Path) -> list[Path]:
    """Three ranks of one run; the requests `shared` and `b` occur on more than one."""
    folder = tmp_path / "run"
    folder.mkdir()
    steps = [
        [step_fields(request="shared", step=n, rank=0, num_accepted=n % 4) for n in range(700)],
        [step_fields(request="b", step=n, rank=1, num_accepted=3, target_gaps=[1.0] * 4) for n in range(5)],
        [],
        [step_fields(request=("b", "shared", "c")[n % 3], step=n, rank=3) for n in range(600)],
    ]
    requests: list[list[dict[str, Any]]] = [
        [{"request": "shared", "prompt_ids": [1]}],
        [],
        [],
        [{"request": "b", "prompt_digest": "d"}],
    ]
    return [
        write_trace(
            folder / f"rank{rank}.spectrace",
            steps[rank],
            requests=requests[rank],
            run={"reported": {"rank": rank}},
        )
        for rank in range(4)
    ]


@pytest.mark.parametrize("as_folder", [True, False])
def test_ranks_open_as_one(ranks: list[Path], as_folder: bool) -> None:
    """A folder or a list: steps follow each other, counts add up, requests are listed once."""
    with spectrace.open(ranks[0].parent if as_folder else ranks) as trace:
        assert trace.paths == tuple(ranks)
        assert len(trace) == 1305
        every = list(trace)
        assert [step.rank for step in every] == [0] * 700 + [1] * 5 + [3] * 600
        for index in (0, 699, 700, 704, 705, -1):
            assert trace.steps[index] == every[index]
        assert trace.steps[698:707] == every[698:707]
        assert trace.columns("rank").tolist() == [step.rank for step in every]
        assert trace.columns("request").tolist() == [step.request for step in every]
        gaps = trace.columns("target_gaps")
        assert gaps.present.tolist() == [step.target_gaps is not None for step in every]
        assert gaps[702].tolist() == [1.0] * 4
        assert trace.requests.names == ["shared", "b", "c"]
        assert trace.requests[0].prompt_ids == (1,)
        assert trace.state == "closed"
        assert trace.problems == []
        assert trace.size_bytes == sum(path.stat().st_size for path in ranks)


def test_counts_of_ranks_add_up(ranks: list[Path]) -> None:
    """The counts of the whole are the sum of those of its files, and the groups count over all steps."""
    total = spectrace.Counts()
    for path in ranks:
        with spectrace.open(path) as part:
            total.add(part.counts)
    with spectrace.open(ranks) as trace:
        assert trace.counts == total
        assert total.steps == 1305
        groups = trace.groups
        assert groups.rows.sum() == 1305
        assert groups.row.tolist() == [0, *groups.rows.cumsum().tolist()[:-1]]
        assert groups.accepted.sum() == total.accepted
        assert groups.rejected.sum() == total.rejected


def test_rejections_are_found_across_ranks(ranks: list[Path]) -> None:
    """Forward and backward, the nearest rejected proposal is found in whichever file it lies."""
    with spectrace.open(ranks) as trace:
        rejected = [at for at, step in enumerate(trace) if step.num_accepted < len(step.proposal_ids)]
        for start in (0, 3, 4, 698, 699, 700, 703, 704, 705, 1304):
            after = next((at for at in rejected if at >= start), None)
            before = next((at for at in reversed(rejected) if at <= start), None)
            assert trace.find_rejected(start) == after
            assert trace.find_rejected(start, forward=False) == before


def test_a_damaged_rank_is_named(ranks: list[Path]) -> None:
    """Problems say in which file they are; the other ranks are shown."""
    data = bytearray(ranks[1].read_bytes())
    data[data.index(b"STEP") + 60] ^= 0xFF
    ranks[1].write_bytes(data)
    with spectrace.open(ranks) as trace:
        assert len(list(trace)) == 1300
        assert len(trace.problems) == 1
        assert trace.problems[0].startswith("rank1.spectrace: ")


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    """An empty folder, a missing file and a pipe are refused by name, without waiting."""
    with pytest.raises(TraceError, match=r"holds no \*\.spectrace"):
        spectrace.open(tmp_path)
    with pytest.raises(TraceError, match="cannot be read"):
        spectrace.open(tmp_path / "missing")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(TraceError, match="not a regular file"):
        spectrace.open(pipe)


def test_rank_files_in_numerical_order(tmp_path: Path) -> None:
    """Rank 10 comes behind rank 2."""
    for rank in (10, 2, 1):
        write_trace(tmp_path / f"rank{rank}.spectrace", [{"rank": rank}])
    with spectrace.open(tmp_path) as trace:
        assert [step.rank for step in trace] == [1, 2, 10]
