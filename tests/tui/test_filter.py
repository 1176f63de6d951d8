"""Listing only what fits, and finding things in it: filters, expressions, counts, undo."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import spectrace
from spectrace import TraceWriter
from spectrace.analysis.where import parse_where
from spectrace.tui.hunt import Hunt
from spectrace.tui.listed import Filter, Listed
from spectrace.tui.loader import Loader
from spectrace.tui.needles import AllBut, ExpressionNeedle, TextNeedle, Within, needle_for
from spectrace.tui.pages.page import PageLine
from tests.tui.driving import viewing
from tests.tui.traces import WORDS, made_step, make_trace

ROWS = 300


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of many small chunks."""
    path = tmp_path_factory.mktemp("traces") / "run.spectrace"
    with TraceWriter(path, {}, strict=True) as writer:
        writer.tokens(target=dict(enumerate(WORDS, 100)))
        for row in range(ROWS):
            writer.step(made_step(row))
            if row % 7 == 6:
                writer.flush()
    return path


@pytest.fixture
def loader(trace: Path) -> Iterator[Loader]:
    """The trace, opened."""
    with spectrace.open(trace) as opened:
        yield Loader(opened)


def rows(loader: Loader, needle: object) -> list[int]:
    """Every row that a needle matches."""
    kept = Filter(loader, needle)  # type: ignore[arg-type]
    while not kept.is_done:
        kept.advance()
    return kept.rows.tolist()


@pytest.mark.parametrize(
    "text", ["accepted < 2 and position > 50", "final_kind == 'bonus'", "0 < accepted < 3"]
)
def test_an_expression_keeps_what_it_says(loader: Loader, text: str) -> None:
    """The same steps as `spectrace steps --where`; inverted, all the others."""
    where = parse_where(text)
    wanted = [row for row in range(ROWS) if (step := loader.step(row)) is not None and where.matches(step)]
    needle = needle_for(text, loader)
    assert isinstance(needle, ExpressionNeedle)
    assert rows(loader, needle) == wanted
    assert rows(loader, AllBut(needle)) == [row for row in range(ROWS) if row not in wanted]


@pytest.mark.parametrize("text", ["fox", "stop", "'a < b'", "x in y", "103", "position", "<s>", "<", "=>"])
def test_what_names_no_field_beside_a_comparison_is_a_text(loader: Loader, text: str) -> None:
    """Token texts may look like code."""
    assert isinstance(needle_for(text, loader), TextNeedle)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("foo < 2", '"foo" at character 1: no such field'),
        ("!acepted<2", "did you mean accepted"),
        ("target_ranks > 5", "5 in target_ranks"),
        ("accepted = 2", "write =="),
        ("ranks > ", "target_ranks"),
        ("ranks > 5", "target_ranks"),
        ("'replay' in flag", "did you mean flags"),
    ],
)
@pytest.mark.parametrize("sign", ["&", "/"])
async def test_a_wrong_expression_is_said_and_filters_nothing(
    trace: Path, sign: str, text: str, hint: str
) -> None:
    """It is never taken for a text that no step holds."""
    if sign == "/":
        text = text.removeprefix("!")
    async with viewing(trace) as driven:
        await driven.type(f"{sign}{text}\r")
        assert hint in driven.text
        assert driven.steps.listed.filter is None
        assert driven.steps.hunt.search is None


@pytest.mark.parametrize("sign", ["&", "/"])
async def test_a_field_that_no_step_has_is_named(trace: Path, sign: str) -> None:
    """A sound expression that cannot match anything in this trace says why."""
    async with viewing(trace) as driven:
        await driven.type(f"{sign}rank > 5\r")
        assert f"{sign}rank > 5: no step has rank, did you mean target_ranks" in driven.lines[-2]


async def test_the_names_of_an_expression_are_listed(trace: Path) -> None:
    """:fields says what may be asked; Esc leads back."""
    async with viewing(trace) as driven:
        await driven.type(":fields\r")
        assert driven.row_of("drafted ").split() == ["drafted", "number"]
        await driven.press("escape")
        assert driven.app.screen is driven.steps


def test_two_needles_keep_what_both_match(loader: Loader) -> None:
    """A search under a filter."""
    fox, early = needle_for("fox", loader), needle_for("position < 100", loader)
    both = set(rows(loader, fox)) & set(rows(loader, early))
    assert rows(loader, Within(fox, early)) == sorted(both)


def test_places_and_rows_of_a_list_agree(loader: Loader) -> None:
    """A row that is not listed stands for the nearest one after it, at the end for the last."""
    listed = Listed(loader)
    kept = Filter(loader, needle_for("accepted == 3", loader))
    while not kept.is_done:
        kept.advance()
    listed.put(kept)
    every = kept.rows.tolist()
    rng = random.Random(3)
    for row in rng.sample(range(ROWS), 50):
        after = next((kept_row for kept_row in every if kept_row >= row), every[-1])
        assert listed.row_at(listed.index_of(row)) == after
        assert listed.holds(row) is (row in every)
    assert [listed.row_at(index) for index in range(len(listed))] == every
    assert listed.undo()
    assert len(listed) == ROWS
    assert not listed.undo()


def test_a_filter_that_is_not_finished_is_replaced_and_not_kept(loader: Loader) -> None:
    """Undo leads to what was seen whole."""
    listed = Listed(loader)
    hunt = Hunt(loader, listed, lambda task: None, lambda: None)
    assert hunt.filter_by("accepted < 2") == ""
    first = listed.filter
    assert hunt.filter_by("accepted < 1") == ""
    assert first is not None
    assert first.is_stopped
    assert listed.undo()
    assert listed.filter is None
    assert "no such field" in hunt.filter_by("acepted < 2 and accepted < 3")
    assert listed.filter is None


def test_a_filter_goes_on_where_the_trace_grew(tmp_path: Path) -> None:
    """New steps are looked at once, each in its place."""
    path = tmp_path / "live"
    writer = TraceWriter(path, {}, strict=True)
    for row in range(10):
        writer.step(made_step(row))
    writer.flush()
    with spectrace.open(path) as opened:
        loader = Loader(opened)
        kept = Filter(loader, needle_for("accepted == 3", loader))
        for end in (10, 25, 40):
            while loader.total < end:
                writer.step(made_step(loader.total))
                writer.flush()
                loader.refresh()
            while not kept.is_done:
                kept.advance()
            assert kept.rows.tolist() == [row for row in range(end) if row % 4 == 3]
    writer.close()


async def test_the_list_holds_what_fits_and_keys_stay_in_it(trace: Path) -> None:
    """Moves, ends, rejections and searches stay within the filter; the count is shown."""
    async with viewing(trace) as driven:
        await driven.press("5", "0", "g")
        await driven.type("&accepted == 3 and position >= 60\r")
        assert driven.steps.row == 51
        assert "1 of 63" in driven.text
        await driven.press("j")
        assert driven.steps.row == 55
        await driven.press("G")
        assert driven.steps.row == 299
        await driven.type("g/fox\rn")
        assert driven.steps.row % 4 == 3
        assert "/fox: " in driven.text
        await driven.press("e")
        assert "there is no next rejection" in driven.text
        await driven.type("52g")
        assert driven.steps.row == 55
        assert "step 52 is not listed" in driven.text
        assert not any(line.startswith("    52 ") for line in driven.lines)


async def test_a_leading_exclamation_mark_inverts_and_u_undoes(trace: Path) -> None:
    """Filters replace each other; undo goes back one by one, an empty one lists all."""
    async with viewing(trace) as driven:
        await driven.type("&req-002\r")
        assert len(driven.steps.listed) == 10
        await driven.type("&!req-002\r")
        assert len(driven.steps.listed) == ROWS - 10
        await driven.type("&\r")
        assert len(driven.steps.listed) == ROWS
        for length in (ROWS - 10, 10, ROWS):
            await driven.press("u")
            assert len(driven.steps.listed) == length
        await driven.press("u")
        assert "no filter to undo" in driven.text


async def test_a_filter_that_keeps_nothing_says_so_and_every_key_is_harmless(trace: Path) -> None:
    """The list is empty, the pane says how to get out of it."""
    async with viewing(trace) as driven:
        await driven.type("&nothing like it\r")
        assert "No step fits the filter" in driven.text
        await driven.press(*"jkGgfeEnN", ".", "}", "asterisk", "t", "y", "z", "z", "full_stop")
        assert driven.app.is_running
        await driven.press("u")
        assert "step 0/300" in driven.text


async def test_a_wrong_expression_is_explained_and_changes_nothing(trace: Path) -> None:
    """The sentence says at which character; the list stays."""
    async with viewing(trace, size=(140, 40)) as driven:
        await driven.type("&accepted < \r")
        assert "at character 11" in driven.text
        assert len(driven.steps.listed) == ROWS
        await driven.type("/accepted < 'x'\r")
        assert "cannot compare a number with a text" in driven.text


async def test_a_search_takes_an_expression(trace: Path) -> None:
    """`/` finds what `--where` finds, and counts it."""
    async with viewing(trace) as driven:
        await driven.type("/accepted == 3 and position > 100\r")
        assert driven.steps.row == 91
        assert "1 of 53" in driven.text


async def test_star_searches_the_token_under_the_cursor_by_its_id(trace: Path) -> None:
    """Texts with the same digits, and requests, are no match."""
    async with viewing(trace) as driven:
        await driven.press("j", "asterisk")
        assert '/102 " brown"' in driven.text
        for _ in range(5):
            step = driven.steps.loader.step(driven.steps.row)
            assert step is not None
            assert 102 in (*step.proposal_ids, *step.emitted_ids)
            await driven.press("n")


async def test_marks_and_the_way_back(trace: Path) -> None:
    """Marks: m a, ' a, '' and Ctrl-O: every jump can be taken back, one by one."""
    async with viewing(trace) as driven:
        await driven.type("40gma")
        assert "step 40 is mark a" in driven.text
        await driven.type("200g'a")
        assert driven.steps.row == 40
        await driven.type("''")
        assert driven.steps.row == 200
        await driven.type("'b")
        assert "no such mark; there are: a" in driven.text
        await driven.press("G")
        await driven.press("ctrl+o")
        assert driven.steps.row == 200
        await driven.press("ctrl+o", "ctrl+o")
        assert driven.steps.row == 200
        await driven.press("ctrl+o", "ctrl+o", "ctrl+o", "ctrl+o")
        assert "where the first jump began" in driven.text
        assert driven.steps.row == 0


async def test_a_filter_on_an_empty_trace_is_harmless(tmp_path: Path) -> None:
    """Nothing to look at, nothing to say."""
    async with viewing(make_trace(tmp_path / "empty", 0)) as driven:
        await driven.type("&accepted < 2\r/fox\ru")
        assert driven.app.is_running


async def test_a_step_that_is_filtered_away_is_said_to_be(trace: Path) -> None:
    """By its number, by its mark, by the last jump and from a page: the cursor goes to the nearest one."""
    async with viewing(trace) as driven:
        await driven.press("5", "G", "m", "a")
        await driven.type("&final_kind == 'bonus'\r")
        for keys, words in (
            (("5", "G"), "step 5 is not listed"),
            (("apostrophe", "a"), "mark a: step 5 is not listed"),
        ):
            await driven.press("G", *keys)
            assert words in driven.text
            assert driven.steps.row == 7
        await driven.press("G")
        driven.steps.places.jump(6)
        await driven.press("apostrophe", "apostrophe")
        assert "step 6 is not listed" in driven.text
        driven.app.open_place(PageLine([], row=9))
        await driven.settle()
        assert "step 9 is not listed" in driven.text
        await driven.press("7", "G")
        assert "is not listed" not in driven.text
        await driven.press("u", "apostrophe", "a")
        assert driven.steps.row == 5
        assert "is not listed" not in driven.text


async def test_what_is_no_letter_is_no_mark(trace: Path) -> None:
    """It is said, and Esc says nothing."""
    async with viewing(trace) as driven:
        await driven.press("m", "1")
        assert "a mark is a letter" in driven.text
        assert driven.steps.count == ""
        await driven.press("m", "escape")
        assert "a mark" not in driven.text
        assert driven.steps.places.marks == {}
