"""Rules that go by the numbers of requests, over the files of several ranks: each file counts from 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.analysis.diagnosis import Diagnosis, diagnose
from spectrace.analysis.numbering import numbered_files, request_names
from spectrace.testing import write_trace

GREEDY = {"verification": {"rule": "greedy"}, "sampling": {"temperature": 0}}


def step(name: str, *, is_wrong: bool, reused: bool) -> dict[str, Any]:
    """One step that commits another token than the target's clear choice, or after a prefix hit."""
    return {
        "request": name,
        "step": 0,
        "position": 4,
        "proposal_ids": [5],
        "num_accepted": 0,
        "emitted_ids": [9 if is_wrong else 6],
        "target_ids": [6, 7],
        "target_gaps": [3.0, 3.0],
        "target_top": [[[6, -0.1], [9, -3.1]], [[7, -0.1]]],
        "prefix_hit_length": 16 if reused else 0,
    }


def ranks(folder: Path, wrong: tuple[int, ...] = ()) -> list[Path]:
    """Three files with five requests each; those of the second one reused cached blocks."""
    folder.mkdir()
    return [
        write_trace(
            folder / f"rank{rank}.spectrace",
            [step(f"r{n}", is_wrong=n in wrong, reused=rank == 1) for n in range(5 * rank, 5 * rank + 5)],
            run=GREEDY,
        )
        for rank in range(3)
    ]


def judged(tmp_path: Path, wrong: tuple[int, ...]) -> Diagnosis:
    """The diagnosis of such a run beside one in which every text is right."""
    with (
        spectrace.open(ranks(tmp_path / "run", wrong)) as trace,
        spectrace.open(ranks(tmp_path / "control")) as control,
    ):
        return diagnose(trace, control=control)


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ((5, 6, 7, 8, 9), "found"),
        ((4, 5, 6, 7, 8), "silent"),  # one is of the file before
        ((6, 7, 8, 9, 10), "silent"),  # one is of the file behind
        ((), "cleared"),
    ],
)
def test_prefix_reuse_is_judged_by_the_requests_of_their_file(
    tmp_path: Path, wrong: tuple[int, ...], answer: str
) -> None:
    """Wrong text is laid to reuse where just the requests that reused are wrong, in whichever file."""
    diagnosis = judged(tmp_path, wrong)
    found = [f for f in diagnosis.findings if f.id == "kv-state/poisoned"]
    assert [f.evidence["wrong_with_reuse"].trials for f in found] == ([5] if answer == "found" else [])
    assert any(c.id == "kv-state/prefix-reuse" for c in diagnosis.cleared) is (answer == "cleared")


def test_a_number_is_left_out_behind_each_file(tmp_path: Path) -> None:
    """It is that of steps whose request no file declares, and has no name."""
    with spectrace.open(ranks(tmp_path / "run")) as trace:
        assert [own.numbers for own in numbered_files(trace)] == [range(5), range(6, 11), range(12, 17)]
        assert request_names(trace, [16, 0, 5, 6, 99, -1]) == {0: "r0", 6: "r5", 16: "r14"}
