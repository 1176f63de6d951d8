"""What a viewer asks of a comparison without reading the traces again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spectrace import Trace, compare
from spectrace.analysis.comparison.row_pairs import BEHIND_FORK, EMITTED, PROPOSAL, SAME_START, TARGET_PICK

Traced = Callable[..., Trace]
Cut = Callable[..., list[dict[str, Any]]]
TEXT = [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_step_stands_beside_the_one_that_begins_or_covers_its_place(traced: Traced, cut: Cut) -> None:
    """B commits in one step what A commits in two; the second of A lies inside it."""
    rows = compare(traced(cut(TEXT, [1, 1, 2, 4])), traced(cut(TEXT, [1, 3, 4]))).rows
    assert rows.b_of_a.tolist() == [0, 1, 1, 2]
    assert [bool(mark & SAME_START) for mark in rows.differs.tolist()] == [True, True, False, True]
    assert [rows.row_of_b(row) for row in (-1, 2, 4)] == [None, 1, None]


def test_requests_that_interleave_are_not_mixed(traced: Traced, cut: Cut) -> None:
    """Another request at the same committed length is another place."""
    requests = [{"request": name, "prompt_digest": f"sha256:{name}"} for name in ("r0", "r1")]
    one, other = cut(TEXT, [1, 3, 4]), cut(TEXT[::-1], [1, 3, 4], request="r1")
    mixed = [step for pair in zip(one, other) for step in pair]
    rows = compare(traced(mixed, None, requests), traced([*other, *one], None, requests)).rows
    assert rows.b_of_a.tolist() == [3, 0, 4, 1, 5, 2]
    assert rows.differs.tolist() == [SAME_START] * 6


def test_the_next_differing_step_is_found_both_ways(traced: Traced, cut: Cut) -> None:
    """Steps 1 and 3 differ; from anywhere the nearest is found."""
    a, b = cut(TEXT, [1, 2, 2, 3]), cut(TEXT, [1, 2, 2, 3])
    for step in (b[1], b[3]):
        step["proposal_ids"] = [*step["proposal_ids"][:2], 555]
    rows = compare(traced(a), traced(b)).rows
    assert [rows.next_difference(row) for row in (-1, 0, 1, 2, 3)] == [1, 1, 3, 3, None]
    assert [rows.next_difference(row, forward=False) for row in (4, 3, 2, 1, 0)] == [3, 1, 1, None, None]
    assert rows.differs[1] & PROPOSAL


def test_what_lies_behind_a_fork_is_marked_and_not_compared(traced: Traced, cut: Cut) -> None:
    """The step that parts is marked with what differs, those behind it with nothing else."""
    rows = compare(traced(cut(TEXT, [2, 2, 2, 2])), traced(cut([1, 2, 33, 4, 5, 6, 7, 8], [2, 2, 2, 2]))).rows
    marks = [mark & ~SAME_START for mark in rows.differs.tolist()]
    assert marks[0] == 0
    assert marks[1] & (EMITTED | TARGET_PICK) == EMITTED | TARGET_PICK
    assert marks[2:] == [BEHIND_FORK, BEHIND_FORK]


def test_every_step_of_a_has_a_place(traced: Traced, cut: Cut) -> None:
    """Steps of requests without a partner are there and stand beside nothing."""
    a = [*cut(TEXT, [4]), *cut(TEXT, [4], request="alone")]
    requests = [
        {"request": "r0", "prompt_digest": "sha256:aa"},
        {"request": "alone", "prompt_digest": "sha256:b"},
    ]
    rows = compare(traced(a, None, requests), traced(cut(TEXT, [4]))).rows
    assert len(rows.b_of_a) == len(rows.differs) == len(a)
    assert rows.b_of_a.tolist() == [0, 1, -1, -1]
