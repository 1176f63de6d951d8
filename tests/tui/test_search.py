"""Searching piece by piece answers what a search of the whole trace would, or that it is not known yet."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import spectrace
from spectrace import TraceWriter
from spectrace.tui.listed import Listed
from spectrace.tui.loader import Loader
from spectrace.tui.needles import TextNeedle
from spectrace.tui.search import Search, StepWalk
from tests.tui.traces import WORDS, made_step

ROWS = 200


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    """A trace of many small chunks."""
    path = tmp_path_factory.mktemp("traces") / "run.spectrace"
    with TraceWriter(path, {}, strict=True) as writer:
        writer.tokens(target=dict(enumerate(WORDS, 100)))
        for row in range(ROWS):
            writer.step(made_step(row))
            if row % 7 == 6:
                writer.flush()
    with spectrace.open(path) as trace, pytest.MonkeyPatch.context() as patch:
        patch.setattr("spectrace.tui.loader._ROWS_TOGETHER", 15)
        yield Loader(trace)


@pytest.mark.parametrize("row", [0, 77, ROWS - 1])
def test_chunks_are_read_together_but_not_too_many(loader: Loader, row: int) -> None:
    """Two frames of seven rows at a time, and every frame once."""
    together = list(loader.chunks_together(row))
    assert [piece.row for pieces in together for piece in pieces] == [
        piece.row for piece in loader.chunks(row)
    ]
    assert {len(pieces) for pieces in together[:-1]} <= {2}


def matches(loader: Loader, text: str) -> list[int]:
    """Rows that hold a text or id, the slow way."""
    found = []
    for row in range(ROWS):
        step = loader.step(row)
        assert step is not None
        ids = {id_ for id_ in (*step.proposal_ids, *step.emitted_ids) if id_ is not None}
        texts = [loader.raw_token(token) or "" for token in ids]
        if text in step.request or any(text in t for t in texts) or text in map(str, ids):
            found.append(row)
    return found


@pytest.mark.parametrize("text", ["fox", "req-01", "103", "世", "nowhere"])
@pytest.mark.parametrize("origin", [0, 1, 77, ROWS])
def test_a_search_finds_what_is_there(loader: Loader, text: str, origin: int) -> None:
    """At every moment the next match is right or unknown; at the end all are known."""
    every = matches(loader, text)
    search = Search(loader, TextNeedle(text, loader), origin)
    rng = random.Random(1)
    while not search.is_done:
        search.advance()
        for row in rng.sample(range(ROWS), 20):
            for forward in (True, False):
                found = search.next_match(row, forward=forward)
                assert found == "unknown" or found == expected(every, row, forward=forward)
    assert search.count == len(every)
    assert search.share == 1
    for row in range(ROWS):
        assert search.next_match(row) == expected(every, row, forward=True)
        assert search.next_match(row, forward=False) == expected(every, row, forward=False)
        assert search.number_of(row) == sum(match <= row for match in every)


def expected(every: list[int], row: int, *, forward: bool) -> int | None:
    """The match after or before a row, going round."""
    if not every:
        return None
    if forward:
        return next((match for match in every if match > row), every[0])
    return next((match for match in reversed(every) if match < row), every[-1])


def test_a_walk_finds_the_nearest_step_or_the_end(loader: Loader) -> None:
    """Forward and back, row by row."""
    for start, forward, found in ((50, True, 60), (49, False, 40), (195, True, None)):
        walk = StepWalk(
            loader, Listed(loader), lambda step: step.step == 0, start + forward, forward=forward, name="step"
        )
        while not walk.is_done:
            walk.advance(rows=3)
        assert walk.found == found
