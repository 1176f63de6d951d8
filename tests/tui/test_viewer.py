"""The main screen: what it shows, where keys lead, at several sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spectrace
from spectrace import Step, TraceWriter
from spectrace.analysis.rejection import node_states
from spectrace.testing import make_step
from spectrace.tui.keys import KEYS, every_key
from spectrace.tui.layout import layout_for
from spectrace.tui.listed import Listed
from spectrace.tui.loader import Loader
from spectrace.tui.screens.page import PageScreen
from spectrace.tui.screens.steps import StepsScreen
from spectrace.tui.search import StepWalk
from spectrace.tui.spans import text_of, width_of
from spectrace.tui.step_detail import detail_lines
from spectrace.tui.step_row import columns_for, step_line
from spectrace.tui.terminal import Terminal, terminal_of
from tests.tui.driving import viewing
from tests.tui.traces import made_step, make_trace

SIZES = [(80, 24), (140, 40)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of a thousand steps, ten to a request."""
    return make_trace(tmp_path_factory.mktemp("traces") / "run.spectrace", 1000)


@pytest.mark.parametrize("size", SIZES)
async def test_a_step_is_one_row_told_by_glyphs(trace: Path, size: tuple[int, int]) -> None:
    """Accepted part, first rejected token with what the target wanted, and what was not reached."""
    async with viewing(trace, size=size) as driven:
        row = driven.row_of("  1 req-000")
        assert "1/3" in row
        assert "= quick x brown→ brown · fox" in row
        assert "3.5" in row
        full = driven.row_of("  3 req-000")
        assert "= fox = dog =ing + 世界" in full
        assert "> " in driven.row_of("  0 req-000")


async def test_the_header_says_what_this_is_in_words(trace: Path) -> None:
    """File, steps, requests, accept length, acceptance and whether it was closed."""
    async with viewing(trace, size=(140, 40)) as driven:
        head = driven.lines[0]
    for words in ("run.spectrace", "1,000 steps", "100 requests", "accept length 2.50", "50.0 %", "closed"):
        assert words in head


@pytest.mark.parametrize("size", SIZES)
async def test_the_detail_pane_shows_raw_id_mapped_id_text_and_the_targets_side(
    trace: Path, size: tuple[int, int]
) -> None:
    """For the token under the cursor and its neighbours, with the top alternatives of both sides."""
    async with viewing(trace, size=size) as driven:
        await driven.press("j")
        assert "step 1 · request req-000 step 1 · position 11 · corrected" in driven.text
        row = driven.row_of(">1")
        for words in ("x", "2", '102 " brown"', "-0.250", "-2.000", "2", "1.00"):
            assert words in row
        assert '0 " the" -0.500' in driven.row_of("draft's top @1")
        assert '103 " fox" -0.250' in driven.row_of("target's top @1")
        assert "draft KV 9" in driven.text
        assert "B(3) rms 1.500" in driven.text


async def test_h_and_l_move_the_token_cursor(trace: Path) -> None:
    """The detail pane follows within the step and stops at its ends."""
    async with viewing(trace) as driven:
        await driven.press("j", "l")
        assert driven.steps.position == 2
        assert "draft's top @2" in driven.text
        await driven.press("l", "l", "h", "h", "h", "h")
        assert driven.steps.position == 0


LEADS: list[tuple[str, int]] = [
    ("jjk", 1),
    ("5j", 5),
    ("G", 999),
    ("Gg", 0),
    ("123G", 123),
    ("123g", 123),
    (":1,00\r", 100),
    ("f", 0),
    ("3je", 4),
    ("5jE", 4),
    ("]][", 1),
    ("3e", 4),
    ("}", 10),
    ("}}{", 10),
    ("}.", 11),
    ("}.,", 10),
    ("9999G", 999),
]


async def test_keys_lead_to_steps(trace: Path) -> None:
    """Moving, counts, rejections, requests: each key goes where its help says."""
    async with viewing(trace) as driven:
        for keys, row in LEADS:
            await driven.type("g" + keys)
            assert (keys, driven.steps.row) == (keys, row)
            assert f"> {row:>4}" in driven.text
            assert f"step {row:,}/1,000" in driven.text
        for names, row in ((["home", "down", "down", "up"], 1), (["end"], 999), (["1", "escape", "k"], 998)):
            await driven.press(*names)
            assert driven.steps.row == row


async def test_a_request_that_ended_is_not_looked_for_to_the_end_of_the_trace(tmp_path: Path) -> None:
    """Where a step says that it is its request's first or last, `,` and `.` say so and read nothing."""
    path = tmp_path / "run.spectrace"
    with TraceWriter(path, {}) as writer:
        for row in range(1000):
            writer.step({**made_step(row), "stop": "eos" if row == 9 else None})
    async with viewing(path) as driven:
        await driven.press("comma")
        assert "the request begins here" in driven.text
        for keys in (["5", "full_stop"], ["9", "9", "full_stop"], ["full_stop"]):
            await driven.press(*keys)
        assert driven.steps.row == 9
        assert "the request ends here: eos" in driven.text
        await driven.press("j", "3", "full_stop")
        assert driven.steps.row == 13
        await driven.press("9", "comma")
        assert driven.steps.row == 10


def test_a_walk_ends_where_nothing_more_fits(tmp_path: Path) -> None:
    """A count beyond the last step of a request leads there, without a look at the steps behind it."""
    with spectrace.open(make_trace(tmp_path / "run.spectrace", 1000)) as trace:
        loader = Loader(trace)
        seen: list[int] = []

        def fits(step: Step) -> bool:
            seen.append(step.position)
            return True

        def is_last(step: Step) -> bool:
            return step.step == 9

        walk = StepWalk(loader, Listed(loader), fits, 0, forward=True, name="", count=500, is_last=is_last)
        while not walk.is_done:
            walk.advance()
    assert walk.found == 9
    assert len(seen) == 10


async def test_pages_go_and_come_back(trace: Path) -> None:
    """A page down moves the view along, a page up brings it back."""
    async with viewing(trace) as driven:
        for down, up in (("space", "b"), ("pagedown", "pageup"), ("ctrl+d", "ctrl+u")):
            await driven.press("5", "0", "G")
            top = driven.steps.steps.top
            await driven.press(down)
            moved = driven.steps.row - 50
            assert moved >= 4
            assert driven.steps.steps.top == top + moved
            assert f"> {driven.steps.row:>4}" in driven.text
            await driven.press(up)
            assert (driven.steps.row, driven.steps.steps.top) == (50, top)


async def test_the_cursor_stays_in_view_wherever_it_goes(trace: Path) -> None:
    """After jumps and resizes the row under the cursor is on the screen."""
    async with viewing(trace) as driven:
        for keys in (["G"], ["k"] * 15, ["5", "0", "0", "G"], ["g"], ["e"] * 20):
            await driven.press(*keys)
            assert f"> {driven.steps.row:>4}" in driven.text
        for size in ((40, 10), (140, 40), (80, 24)):
            await driven.pilot.resize_terminal(*size)
            await driven.settle()
            assert f"> {driven.steps.row:>4}" in driven.text


async def test_searching_counts_matches_and_goes_round(trace: Path) -> None:
    """/ finds a token text or a request, n and N step through the matches, their number is shown."""
    async with viewing(trace) as driven:
        await driven.press("/", *"req-042", "enter")
        assert driven.steps.row == 420
        assert "/req-042: 1 of 10" in driven.text
        await driven.press("n", "n")
        assert driven.steps.row == 422
        assert "3 of 10" in driven.text
        await driven.press("N", "N", "N")
        assert driven.steps.row == 429
        assert "went round" in driven.text


async def test_a_search_finds_ids_and_texts_in_any_case(tmp_path: Path) -> None:
    """A number is a token id; lower case finds upper case too."""
    texts = {7: " Needle", 11: "x", 12: "y", 13: "z", 99: "own"}
    path = make_trace(tmp_path / "ids", 30, texts=texts, proposal_ids=[11, 12, 13], emitted_ids=[99])
    async with viewing(path) as driven:
        await driven.press("/", *"99", "enter")
        assert "1 of 30" in driven.text or "2 of 30" in driven.text
        await driven.press("/", *"needle", "enter")
        assert "/needle: no match" in driven.text
        await driven.press("/", *"OWN", "enter")
        assert "/OWN: no match" in driven.text
        await driven.press("/", *"own", "enter")
        assert "of 30" in driven.text


async def test_a_burst_of_keys_is_obeyed_in_its_order(trace: Path) -> None:
    """A search, its Enter and the keys behind it may come in one write."""
    async with viewing(trace) as driven:
        await driven.type("/req-042\rnn")
        assert driven.steps.row == 422
        await driven.type("/req-050\rnnf")
        assert driven.steps.row == 0
        assert "first rejection" in driven.text
        await driven.type("12G5jt?q:7\rjl")
        assert driven.steps.row == 8
        assert driven.steps.view == "ids"
        assert driven.app.is_running


async def test_a_match_found_late_does_not_pull_the_reader_back(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys behind a search that takes long go where they lead; the matches are counted all the same."""
    monkeypatch.setattr("spectrace.tui.hunt.PATIENCE", -1.0)
    async with viewing(trace) as driven:
        await driven.type("/req-042\rnnf")
        assert driven.steps.row == 0
        assert "of 10" in driven.text
        await driven.type("/req-042\r7G")
        assert driven.steps.row == 7
        await driven.type("}:5\r")
        assert driven.steps.row == 5
        await driven.type("/req-042\rnn")
        assert driven.steps.row == 422


async def test_the_detail_follows_at_once_and_waits_in_a_burst(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key shows its step with its own frame; of keys that come fast only the last is shown."""
    monkeypatch.setattr("spectrace.tui.screens.steps.DETAIL_DELAY", 0.0)
    async with viewing(trace) as driven:
        await driven.pilot.press("j")
        assert "── step 1 " in driven.text
        monkeypatch.setattr("spectrace.tui.screens.steps.DETAIL_DELAY", 1000.0)
        await driven.pilot.press("j", "j")
        assert "step 3/1,000" in driven.text
        assert "── step 1 " in driven.text
        await driven.settle()
        assert "── step 3 " in driven.text


async def test_typing_a_q_into_a_search_does_not_quit(trace: Path) -> None:
    """Every letter belongs to the prompt until Enter; Esc leaves it."""
    async with viewing(trace) as driven:
        await driven.type("/quick")
        assert driven.lines[-2].startswith("/quick")
        await driven.press("escape")
        assert driven.app.is_running
        assert "step 0/1,000" in driven.text


async def test_the_prompt_remembers_and_edits(trace: Path) -> None:
    """Up recalls what was searched, Ctrl-U clears, backspace deletes and leaves an empty prompt."""
    async with viewing(trace) as driven:
        await driven.type("/req-042\r/")
        await driven.press("up")
        assert driven.lines[-2] == "/req-042"
        await driven.press("ctrl+u", "x", "backspace", "backspace")
        assert driven.steps.prompt is None


@pytest.mark.parametrize(
    ("views", "shown"),
    [(0, "= quick x brown→ brown"), (1, "=101 x102→102"), (2, "=101: quick x102: brown→102: brown")],
)
async def test_t_toggles_text_ids_and_both(trace: Path, views: int, shown: str) -> None:
    """The same step, told three ways."""
    async with viewing(trace, size=(140, 40)) as driven:
        await driven.press(*["t"] * views)
        assert shown in driven.row_of("  1 req-000")


async def test_the_step_opens_on_the_whole_screen_and_closes(trace: Path) -> None:
    """Enter shows the step alone, also where the terminal is too small for two panes; Esc goes back."""
    async with viewing(trace, size=(60, 12)) as driven:
        assert "── step" not in driven.text
        await driven.press("j", "enter")
        assert "── step 1 " in driven.text
        await driven.press("full_stop")
        assert "── step 2 " in driven.text
        await driven.press("escape")
        assert "── step" not in driven.text
        assert driven.steps.row == 2
        await driven.press("z")
        assert "── step 2 " in driven.text


async def test_the_help_lists_every_key(trace: Path) -> None:
    """The help is made from the registry; the keys that close it do not quit."""
    async with viewing(trace, size=(140, 80)) as driven:
        await driven.press("?")
        assert isinstance(driven.app.screen, PageScreen)
        for key in every_key():
            assert key.description in " ".join(driven.text.split())
        await driven.press("q")
        assert isinstance(driven.app.screen, StepsScreen)


async def test_the_help_scrolls_on_a_small_terminal(trace: Path) -> None:
    """What does not fit is reached with j."""
    async with viewing(trace) as driven:
        await driven.press("?", *["j"] * 80)
        assert "share of steps with a rejection" in driven.text


@pytest.mark.parametrize("key", ["q", "Q", "ctrl+c"])
async def test_keys_that_quit(trace: Path, key: str) -> None:
    """Nothing runs, so that Ctrl-C quits like q."""
    async with viewing(trace) as driven:
        await driven.pilot.press(key)
        assert not driven.app.is_running or driven.app._exit


@pytest.mark.parametrize("size", [(40, 10), (20, 6), (10, 3), (80, 24), (200, 60)])
async def test_any_size_shows_steps_and_never_more_than_fits(trace: Path, size: tuple[int, int]) -> None:
    """Small terminals shrink the view; no row is longer than the terminal."""
    async with viewing(trace, size=size) as driven:
        await driven.press("5", "G", "f", "enter", "escape", "?", "q")
        assert len(driven.lines) == size[1]
        strips = driven.app.screen._compositor.render_strips()
        assert all(strip.cell_length <= size[0] for strip in strips)


@pytest.mark.parametrize("size", SIZES)
async def test_a_short_list_leaves_its_lines_to_the_step(tmp_path: Path, size: tuple[int, int]) -> None:
    """No blank line between the last of few steps and the step's pane, and room for what a filter says."""
    path = make_trace(tmp_path / "run.spectrace", 3)
    async with viewing(path, size=size) as driven:
        lines = driven.lines
        last = lines.index(driven.row_of("  2 req-000"))
        assert "step 0 · request" in lines[last + 1]
        await driven.type("&accepted > 99\r")
        assert driven.lines[last - 1 : last + 1] == [
            "  No step fits the filter.",
            "  u brings back what was listed before; & and Enter lists every step.",
        ]


@given(st.integers(1, 300), st.integers(1, 100), st.integers(0, 1000), st.booleans())
def test_the_parts_are_as_high_as_the_terminal(width: int, height: int, total: int, is_zoomed: bool) -> None:
    """Nothing is left over and nothing is beyond, from four lines up."""
    shared = layout_for(width, height, total, is_zoomed=is_zoomed)
    always = 3 - is_zoomed  # header, column names, status; a step on the whole screen has no column names
    assert shared.minimap + shared.list + shared.detail + shared.hints + always == max(height, 4)


def test_every_key_has_an_id_and_words() -> None:
    """Ids are unique, and each key of the registry is bound once."""
    keys = every_key()
    assert len({key.id for key in keys}) == len(keys)
    assert all(key.description and (key.shown or key.command) for key in keys)
    names = [name for key in keys for name in key.keys.split(",")]
    assert len(names) == len(set(names))
    commands = [key.command for key in keys if key.command]
    assert len(commands) == len(set(commands))
    assert all(hasattr(StepsScreen, "action_" + key.action.split("(")[0]) for key in KEYS)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"COLORTERM": "truecolor"}, (True, False, True)),
        ({}, (True, True, True)),
        ({"COLORTERM": "truecolor", "NO_COLOR": "1"}, (True, True, True)),
        ({"COLORTERM": "truecolor", "SSH_CONNECTION": "x"}, (True, True, False)),
        ({"SPECTRACE_FRUGAL": "0", "SSH_CONNECTION": "x"}, (False, True, False)),
        ({"SPECTRACE_FRUGAL": "0", "COLORTERM": "24bit"}, (False, False, True)),
    ],
)
def test_the_environment_decides_how_the_terminal_is_treated(
    environ: dict[str, str], expected: tuple[bool, bool, bool]
) -> None:
    """Frugal unless told otherwise, own colours where nothing better is known, no mouse over SSH."""
    is_frugal, is_ansi, has_mouse = expected
    assert terminal_of(environ) == Terminal(is_frugal=is_frugal, is_ansi=is_ansi, has_mouse=has_mouse)


def test_a_line_lays_out_only_the_tokens_that_fit() -> None:
    """A made-up step of seventy thousand tokens costs what is shown of it, in the list and in the pane."""
    asked: list[int | None] = []

    class Names:
        """Counts what is asked for."""

        def token(self, token_id: int | None, *, draft: bool = False) -> str | None:
            asked.append(token_id)
            return "word"

    size = 70_000
    columns = columns_for(80, 10, 7)
    for accepted in (0, size // 2, size):
        step = make_step(
            proposal_ids=list(range(size)), num_accepted=accepted, emitted_ids=[*range(accepted), 5]
        )
        states = node_states(step)
        line = step_line(3, step, states, Names(), columns)
        assert width_of(line) <= 80
        refused = "xword→word" if accepted < size else "=word"
        assert refused in text_of(line)
        lines = detail_lines(3, step, states, Names(), position=min(accepted, size - 1), width=80, height=10)
        assert len(lines) <= 10
    assert len(asked) < 500


async def test_a_finding_is_gone_to_from_a_page_that_does_not_follow(tmp_path: Path) -> None:
    """As Enter does: the steps are shown, at a step that the finding names."""
    path = make_trace(tmp_path / "run", 60, nonfinite={"draft_logits": 3})
    async with viewing(path, size=(140, 30)) as driven:
        await driven.type("o)")
        found = driven.app.findings
        assert found is not None
        assert driven.app.screen is driven.steps
        assert driven.steps.row == found.rows[0] == 0
        assert "nonfinite/" in driven.lines[-2]
        await driven.type("o)o)")
        assert driven.steps.row == 0


@pytest.mark.parametrize("keys", ["o", "oSo"])
async def test_the_cursor_of_a_page_begins_where_a_line_leads(tmp_path: Path, keys: str) -> None:
    """However fast its facts come."""
    path = make_trace(tmp_path / "run", 60, nonfinite={"draft_logits": 3})
    async with viewing(path) as driven:
        await driven.type(keys)
        page = driven.app.screen
        assert isinstance(page, PageScreen)
        rows = [line.row for line in page._lines]
        assert page.lines.cursor == next(at for at, row in enumerate(rows) if row is not None)
        assert page.lines.cursor > 0
