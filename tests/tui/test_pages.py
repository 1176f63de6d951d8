"""The screen that shows pages: reading beside the viewer, lines, search, the way to steps and back."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from spectrace.errors import TraceError
from spectrace.tui import viewer
from spectrace.tui.loader import Loader
from spectrace.tui.pages import PAGES
from spectrace.tui.pages.page import Page, PageLine
from spectrace.tui.screens.page import PageScreen
from spectrace.tui.screens.palette import PaletteScreen
from spectrace.tui.screens.steps import StepsScreen
from spectrace.tui.spans import Span, width_of
from tests.tui.driving import Driven, viewing
from tests.tui.traces import make_trace

pytestmark = pytest.mark.usefixtures("own_pages")
GO = Event()
"""Lets the slow page go on."""
READ: list[int] = []
"""Rows for which the pages were gathered."""


def _rows(loader: Loader, row: int) -> int:
    READ.append(row)
    return loader.total


def _row(loader: Loader, row: int) -> int:
    READ.append(row)
    return row


def _slow(loader: Loader, row: int) -> int:
    while not GO.wait(0.001):
        loader.keep_going()
    return 1


def _broken(loader: Loader, row: int) -> Any:
    raise TraceError("run\x1b[31m", "is gone")


def _wrong(loader: Loader, row: int) -> Any:
    raise ValueError("[red]\x1b[31m")


def _list(total: int, width: int) -> list[PageLine]:
    head = [PageLine([Span("Heading", "strong")])]
    return [*head, *[PageLine([Span(f"line of step {row * 3}")], row * 3, 1) for row in range(total // 3)]]


OWN = (
    ("all", "1", _rows, _list, False),
    ("here", "2", _row, lambda row, width: [PageLine([Span(f"this is step {row}")])], True),
    ("slow", "3", _slow, _list, False),
    ("broken", "4", _broken, _list, False),
    ("wrong", "5", _wrong, _list, False),
)


@pytest.fixture
def own_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of these tests beside the real ones."""
    pages = tuple(
        Page(
            id=name,
            title=name.upper(),
            key="",
            description=name,
            gather=gather,
            lines=lines,
            follows_cursor=follows,
        )
        for name, _, gather, lines, follows in OWN
    )
    monkeypatch.setattr(viewer, "PAGES", pages)
    monkeypatch.setattr("spectrace.tui.pages.PAGES", pages)
    GO.clear()
    READ.clear()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of a hundred steps."""
    return make_trace(tmp_path_factory.mktemp("traces") / "run.spectrace", 100)


def page_of(driven: Driven) -> PageScreen:
    """The page on top."""
    assert isinstance(driven.app.screen, PageScreen)
    return driven.app.screen


async def test_a_page_is_opened_by_its_name_and_left_again(trace: Path) -> None:
    """`:all` opens it, q and Esc lead back and never quit, S leads to the steps from anywhere."""
    async with viewing(trace) as driven:
        for leave in ("q", "escape", "S", "ctrl+c"):
            await driven.type(":all\r")
            assert driven.lines[0].strip() == "ALL"
            assert driven.lines[1] == "  Heading"
            assert driven.lines[2] == "> line of step 0"
            await driven.press(leave)
            assert isinstance(driven.app.screen, StepsScreen)
            assert driven.app.is_running


async def test_enter_goes_to_the_step_and_token_of_a_line(trace: Path) -> None:
    """The list of steps is shown at the step; Ctrl-O leads back to where the reader was."""
    async with viewing(trace) as driven:
        await driven.type("50g:all\rjjj\r")
        assert driven.steps.row == 9
        assert driven.steps.position == 1
        assert "> " in driven.row_of("   9 req-000")
        await driven.press("ctrl+o")
        assert driven.steps.row == 50
        await driven.type(":all\rg\r")
        assert "this line leads nowhere: line 2 does (2g)" in driven.text


async def test_lines_are_moved_in_and_searched(trace: Path) -> None:
    """Pages, ends, counts, / with n and N; the number of matches is shown."""
    async with viewing(trace) as driven:
        await driven.type(":all\rG")
        assert "> line of step 96" in driven.text
        assert "line 34/34" in driven.text
        await driven.press("g", "space", "b", "ctrl+d", "ctrl+u", "5", "j")
        assert "> line of step 12" in driven.text
        await driven.type("/step 3\r")
        assert "> line of step 30" in driven.text
        assert "2 of 5" in driven.text
        await driven.press("n", "n", "n", "n")
        assert "went round" in driven.text
        await driven.press("N")
        assert "> line of step 39" in driven.text
        await driven.press("escape")
        assert "/step 3" not in driven.text
        await driven.type("/nowhere\r")
        assert "no match" in driven.text


async def test_a_page_is_read_once_for_each_length_of_the_trace(trace: Path) -> None:
    """Opening it again shows it at once."""
    async with viewing(trace) as driven:
        await driven.type(":all\rq:all\rq:all\r")
        assert len(READ) == 1
        assert "line of step 0" in driven.text


async def test_a_page_that_follows_the_cursor_moves_it(trace: Path) -> None:
    """e, E, full stop and the like go on working, and lead the page along."""
    async with viewing(trace) as driven:
        await driven.type("4g:here\r")
        assert "this is step 4" in driven.text
        assert "step 4" in driven.lines[0]
        for key, row in (
            ("e", 5),
            ("E", 4),
            ("full_stop", 5),
            ("comma", 4),
            ("}", 10),
            ("f", 0),
            ("ctrl+o", 10),
        ):
            await driven.press(key)
            assert (key, f"this is step {row}" in driven.text) == (key, True)
        await driven.press("q")
        assert driven.steps.row == 10
        await driven.type(":all\re")
        assert "not in this screen" in driven.text


async def test_findings_are_gone_to_in_a_page_that_follows(tmp_path: Path) -> None:
    """The rules are asked beside the viewer; what they say of the step is said in the page."""
    path = make_trace(tmp_path / "run", 60, nonfinite={"draft_logits": 3})
    async with viewing(path, size=(140, 30)) as driven:
        await driven.type(":here\r")
        await driven.press(")")
        found = driven.app.findings
        assert found is not None
        first = found.next_row(0, 1, forward=True)
        assert first is not None
        assert f"this is step {first}" in driven.text
        assert "nonfinite/" in driven.text
        await driven.type("999)")
        assert "no finding names a step after this one; this one: nonfinite/" in driven.text
        await driven.press("q", "c")
        assert "cliff" in driven.text


async def test_the_newest_word_is_seen_beside_a_filter(trace: Path) -> None:
    """At 80 columns what stands gives way to what was just said."""
    async with viewing(trace) as driven:
        await driven.type("&accepted < 2 and position > 20\r/fox\r")
        assert "&accepted" in driven.lines[-2]
        await driven.type(":nosuchcommand\r")
        said = "no such command: nosuchcommand; a number goes to that step, ? lists the commands"
        assert driven.lines[-2].strip().startswith(said[:70])


async def test_reading_is_said_and_stopped(trace: Path) -> None:
    """While a page is read the status row says so; Esc stops the reading and leaves, q too."""
    async with viewing(trace) as driven:
        await driven.pilot.press(*":slow", "enter")
        await driven.pilot.pause()
        assert "reading… (Esc stops)" in driven.text
        screen = page_of(driven)
        await driven.pilot.press("j", "escape")
        await driven.settle()
        assert "stopped" in driven.text
        await driven.press("q")
        assert screen.gathering._thread is not None
        screen.gathering._thread.join(10)
        assert not screen.gathering._thread.is_alive()
        await driven.pilot.press(*":slow", "enter")
        GO.set()
        await driven.settle()
        assert "Heading" in driven.text


async def test_keys_typed_while_a_page_is_read_act_on_its_lines(trace: Path) -> None:
    """A burst over SSH need not wait for the reading."""
    async with viewing(trace) as driven:
        await driven.pilot.press(*":slow", "enter", "j", "g", "y")
        assert isinstance(driven.app.screen, PageScreen)
        GO.set()
        await driven.settle()
        await driven.settle()
        assert page_of(driven).page.id == "copy"


async def test_a_page_that_fails_says_so_and_the_viewer_goes_on(trace: Path) -> None:
    """One sentence, everything escaped."""
    async with viewing(trace) as driven:
        for name, words in (("broken", "is gone"), ("wrong", "this cannot be shown: ValueError")):
            await driven.type(f":{name}\r")
            assert words in driven.text
            assert all(character.isprintable() for line in driven.lines for character in line)
            await driven.press("q")
        await driven.press("j")
        assert driven.steps.row == 1


async def test_a_filter_or_number_typed_in_a_page_leads_to_the_steps(trace: Path) -> None:
    """What belongs to the list of steps brings it back."""
    async with viewing(trace) as driven:
        await driven.type(":all\r:17\r")
        assert isinstance(driven.app.screen, StepsScreen)
        assert driven.steps.row == 17
        await driven.type(":all\r&req-004\r")
        assert len(driven.steps.listed) == 10
        await driven.type("&\r:all\r:req req-007\r")
        assert driven.steps.row == 70


@pytest.mark.parametrize("size", [(40, 10), (20, 6), (10, 3), (140, 40)])
async def test_a_page_fits_any_size(trace: Path, size: tuple[int, int]) -> None:
    """Every screen is laid out anew at each size."""
    async with viewing(trace, size=size) as driven:
        for keys in (":all\rjjj", "q:here\r", "q?", "q\x10"):
            await driven.type(keys)
            strips = driven.app.screen._compositor.render_strips()
            assert len(strips) == size[1]
            assert all(strip.cell_length <= size[0] for strip in strips)
        await driven.pilot.resize_terminal(80, 24)
        await driven.settle()
        assert len(driven.lines) == 24


async def test_the_palette_finds_by_words_and_does_it(trace: Path) -> None:
    """Ctrl-P, words of what is wanted, Enter; Esc leaves everything as it was."""
    async with viewing(trace) as driven:
        await driven.press("ctrl+p")
        assert isinstance(driven.app.screen, PaletteScreen)
        assert "previous request" in driven.text or "next step" in driven.text
        await driven.type("first reject\r")
        assert isinstance(driven.app.screen, StepsScreen)
        assert "first rejection" in driven.text
        await driven.type("\x10all\r")
        assert page_of(driven).page.id == "all"
        await driven.type("\x10no such thing")
        assert "nothing is called so" in driven.text
        await driven.type("\r")
        assert page_of(driven).page.id == "all"
        await driven.type("q\x10previous rej")
        await driven.press("escape")
        assert driven.steps.row == 0


async def test_tab_completes_commands_and_names(trace: Path) -> None:
    """What Tab offers stands below the prompt."""
    async with viewing(trace) as driven:
        await driven.press(*":fi")
        assert "Tab: fields  finding  first" in driven.lines[-1]
        await driven.press("tab", "tab", "tab")
        assert driven.lines[-2] == ":first"
        await driven.press("escape", "ampersand", *"acc", "tab")
        assert driven.lines[-2] == "&accepted"
        await driven.press("escape")
        await driven.type(":no such command\r")
        assert "no such command" in driven.text


async def test_copying_is_shown_first(trace: Path) -> None:
    """With y the viewer shows the step as JSON; Enter hands exactly that to the terminal, Esc does not."""
    async with viewing(trace) as driven:
        await driven.press("3", "g", "y")
        assert "Enter copies step 3 as JSON" in driven.lines[0]
        await driven.press("escape")
        assert driven.app.clipboard == ""
        await driven.press("y", "enter")
        assert driven.app.clipboard.startswith('{"record": "step"') or '"step"' in driven.app.clipboard
        assert "sent to the terminal" in driven.text
        await driven.type(":all\ry\r")
        assert driven.app.clipboard == "line of step 0"
        await driven.press("Y", "enter")
        assert driven.app.clipboard.splitlines()[:2] == ["ALL", "Heading"]


async def test_the_help_is_searched(trace: Path) -> None:
    """/ in the help finds a key by what it does; ? closes it again."""
    async with viewing(trace) as driven:
        await driven.type("?/undo\r")
        assert "> " in driven.row_of("the filter before this one")
        await driven.press("question_mark")
        assert isinstance(driven.app.screen, StepsScreen)


async def test_notes_vanish_with_the_next_key(trace: Path) -> None:
    """What was said stays until something is done, and no longer."""
    async with viewing(trace) as driven:
        await driven.type("'q")
        assert "no such mark" in driven.text
        await driven.press("1")
        assert "no such mark" not in driven.text


@pytest.mark.parametrize("width", [10, 40, 80, 200])
def test_the_lines_of_every_page_fit(trace: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wider than the screen that shows it."""
    import spectrace

    with spectrace.open(trace) as opened:
        loader = Loader(opened)
        for page in PAGES:
            lines = page.lines(page.gather(loader, 7), width)
            assert lines
            assert max(width_of(line.spans) for line in lines) <= width
