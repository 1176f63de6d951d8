"""What the screens say can be read as it is meant, and says what can be done next."""

from __future__ import annotations

from pathlib import Path

import pytest

from spectrace import TraceWriter
from spectrace.analysis.rejection import node_states
from spectrace.testing import make_step, write_trace
from spectrace.tui.keys import every_key
from spectrace.tui.layout import layout_for
from spectrace.tui.screens.page import PageScreen
from spectrace.tui.screens.palette import found_keys
from spectrace.tui.spans import text_of
from spectrace.tui.step_detail import detail_lines
from spectrace.tui.step_row import columns_for, step_line
from spectrace.tui.summary import hint_line
from tests.tui.driving import viewing
from tests.tui.traces import made_step, make_trace


class Names:
    """Every token is a word."""

    def token(self, token_id: int | None, *, draft: bool = False) -> str | None:
        """The same for all."""
        return "word"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of a hundred steps."""
    return make_trace(tmp_path_factory.mktemp("traces") / "run.spectrace", 100)


def test_tokens_that_do_not_fit_are_counted_without_a_status() -> None:
    """In a tree some of them may be passed over: no glyph of accepted tokens stands before the count."""
    step = make_step(
        proposal_ids=list(range(8)), parents=[-1, -1, 1, 1, 3, 4, 5, 6], num_accepted=6,
        accepted_nodes=[1, 3, 4, 5, 6], emitted_ids=[1, 3, 4, 5, 6, 9],
    )  # fmt: skip
    text = text_of(step_line(0, step, node_states(step), Names(), columns_for(40, 10, 7)))
    assert "‹" in text
    assert "=2" not in text
    assert "…" not in text.partition("‹")[2][:3]


async def test_no_rejection_is_not_called_acceptance(sample_traces: Path, tmp_path: Path) -> None:
    """A trace of which no step says where it was refused, one accepted throughout, and a prefill."""
    async with viewing(sample_traces / "full-v1.spectrace", size=(100, 30)) as driven:
        await driven.type("f")
        assert "no step says that a token was refused" in driven.text
        assert "accepted whole" not in driven.text
    whole = make_trace(tmp_path / "whole", 3, num_accepted=3, emitted_ids=[100, 101, 102, 103])
    async with viewing(whole) as driven:
        await driven.type("f")
        assert "every proposal was accepted whole" in driven.text
    prefill = write_trace(tmp_path / "prefill", [{"proposal_ids": [], "emitted_ids": [7]}])
    async with viewing(prefill) as driven:
        await driven.type("f")
        assert "no step has a proposal" in driven.text


def test_the_hints_name_why_finding_and_step_where_there_is_room() -> None:
    """At 120 columns all of them, at 80 the way to the causes."""
    wide = text_of(hint_line(120))
    assert all(words in wide for words in ("o why", ")/( finding", "s step", "? help", "q quit"))
    assert "o why" in text_of(hint_line(80))


@pytest.mark.parametrize(
    ("words", "id_"),
    [
        ("why", "screen.overview"),
        ("diagnose", "screen.overview"),
        ("compare", "screen.diff"),
        ("d2t", "screen.vocabulary"),
    ],
)
def test_the_palette_knows_other_words(words: str, id_: str) -> None:
    """What a reader would ask for leads to the screen that answers."""
    assert id_ in [key.id for key in found_keys(every_key(), words)]


async def test_the_help_begins_with_moving_hunting_and_every_screen(trace: Path) -> None:
    """Without scrolling at 120x40."""
    async with viewing(trace, size=(120, 40)) as driven:
        await driven.type("?")
        for key in every_key():
            if key.group == "screens":
                assert key.description in driven.text


async def test_the_whole_expression_is_repeated_where_there_is_room(trace: Path) -> None:
    """At 120 columns it is not cut; at 40 its count is seen."""
    text = "accepted < 2 and position > 20 and drafted == 3 and emitted < 9"
    async with viewing(trace, size=(120, 40)) as driven:
        await driven.type(f"&{text}\r")
        assert f"&{text}: 1 of " in driven.lines[-2]
    async with viewing(trace, size=(40, 24)) as driven:
        await driven.type(f"&{text}\r")
        assert ": 1 of " in driven.lines[-2]


async def test_a_filter_that_keeps_nothing_says_what_undoes_it(trace: Path) -> None:
    """In the list itself; no step is claimed to be under the cursor."""
    async with viewing(trace, size=(120, 40)) as driven:
        await driven.type("5g&position > 99999\r")
        assert "No step fits the filter." in driven.lines[4]
        assert "u brings back" in driven.lines[5]
        assert driven.lines[-2].startswith(" no step  &position")
        assert "step 5/100" not in driven.text
        await driven.type("u")
        assert "step 5/100" in driven.text


def test_a_pane_that_is_too_small_says_so() -> None:
    """A draft of five at 80x24: its end is one key away, and that key stands there."""
    step = make_step(
        proposal_ids=list(range(5)), num_accepted=1, emitted_ids=[0, 9], target_top=[[[9, -0.1]]] * 6,
        draft_top=[[[9, -0.1]]] * 5, draft_kv_length=3, taps=[{"boundary": 2, "rms": 1.0}],
    )  # fmt: skip
    states = node_states(step)
    small = detail_lines(0, step, states, Names(), position=1, width=80, height=10)
    assert text_of(small[0]).endswith(" more: Enter ──")
    whole = detail_lines(0, step, states, Names(), position=1, width=80, height=14)
    assert "more" not in text_of(whole[0])
    assert len(whole) < 14


@pytest.mark.parametrize("width", [100, 111, 112, 140])
def test_what_became_of_a_token_is_not_cut(width: int) -> None:
    """The words at the end of its line fit, or shorter ones stand there."""
    step = make_step(proposal_ids=[1, 2, 3], parents=[-1, -1, 0], num_accepted=1, emitted_ids=[1, 3])
    own = make_step(proposal_ids=[], emitted_ids=[1])
    for one in (step, own):
        lines = detail_lines(0, one, node_states(one), Names(), width=width, height=20)
        assert not [line for line in lines[2 : 2 + len(node_states(one))] if "…" in text_of(line)]


def test_a_narrow_but_high_terminal_has_a_pane() -> None:
    """Forty columns are enough for a step where the lines are there."""
    assert layout_for(40, 40, 100).detail >= 10
    assert layout_for(40, 24, 100).detail == 0


async def test_the_first_frame_counts_the_requests(trace: Path) -> None:
    """Of a trace that is no burden, before any key."""
    async with viewing(trace, size=(140, 40)) as driven:
        assert driven.steps.loader.facts.requests == 10
        assert "10 requests" in driven.lines[0]


async def test_hunting_in_a_step_goes_to_its_rejected_token(trace: Path) -> None:
    """`e` and opening the page put the cursor on the token that the steps below have under theirs."""
    async with viewing(trace, size=(120, 40)) as driven:
        await driven.type("2g\r")
        page = driven.app.screen
        assert isinstance(page, PageScreen)
        assert page._lines[page.lines.cursor].position == 2
        await driven.type("e")
        assert page._lines[page.lines.cursor].position == driven.steps.position == 0
        await driven.type("ee")
        assert page._lines[page.lines.cursor].position == driven.steps.position == 2


async def test_a_request_is_found_by_a_part_of_its_name(trace: Path) -> None:
    """When only one has it; else they are named."""
    async with viewing(trace) as driven:
        await driven.type(":req 007\r")
        assert driven.steps.row == 70
        await driven.type(":req req\r")
        assert "10 requests have req in their name: req-000, req-001, req-002 …" in driven.text
        await driven.type(":req nobody\r")
        assert "no request has nobody in its name" in driven.text
        assert driven.steps.row == 70


async def test_a_second_trace_is_opened_from_inside(trace: Path, tmp_path: Path) -> None:
    """`:diff FILE` shows it beside this one; another one after it; a file that cannot be read is named."""
    first = make_trace(tmp_path / "one.spectrace", 30)
    second = make_trace(tmp_path / "two.spectrace", 40)
    async with viewing(trace, size=(120, 40)) as driven:
        await driven.type("C")
        assert ":diff FILE takes one" in driven.text
        for path in (first, second):
            await driven.type(f":diff {path}\r")
            assert driven.lines[0].startswith(" Diff")
            assert path.name in driven.text
        await driven.type(f":diff {tmp_path / 'gone'}\r")
        assert "cannot be read" in driven.text


async def test_a_key_that_does_nothing_says_so(trace: Path) -> None:
    """In the list, and in a screen."""
    async with viewing(trace) as driven:
        await driven.type("~")
        assert "~ does nothing here; ? lists the keys" in driven.text
        await driven.type("o~")
        assert "~ does nothing here" in driven.text


async def test_a_stray_ctrl_q_loses_nothing_that_was_typed(trace: Path) -> None:
    """In a prompt it is no key; outside it quits, as the help says."""
    async with viewing(trace) as driven:
        await driven.type("/fo\x11x")
        assert driven.app.is_running
        assert "/fox" in driven.lines[-2]
        await driven.press("escape")
        await driven.pilot.press("ctrl+q")
        assert driven.app._exit


async def test_a_page_of_a_growing_trace_is_read_again(tmp_path: Path) -> None:
    """Without a key; the cursor stays on its line."""
    path = tmp_path / "live.spectrace"
    with TraceWriter(path, {}, strict=True) as writer:
        for row in range(20):
            writer.step(made_step(row))
        writer.flush()
        async with viewing(path, size=(120, 40)) as driven:
            driven.app.loader.watch()
            await driven.type("R3g")
            assert "req-002" not in driven.text
            writer.step({**made_step(20)})
            writer.flush()
            driven.app.loader.refresh()
            page = driven.app.screen
            assert isinstance(page, PageScreen)
            driven.steps.on_trace_grew()
            assert page._again is not None
            page._again.stop()
            page._gather_again()
            await driven.settle()
            assert "req-002" in driven.text
            assert page.lines.cursor == 2


async def test_following_that_was_left_is_said(tmp_path: Path) -> None:
    """`k` holds the cursor where it is: the status row says so, and which key goes on."""
    path = tmp_path / "live.spectrace"
    with TraceWriter(path, {}, strict=True) as writer:
        for row in range(20):
            writer.step(made_step(row))
        writer.flush()
        async with viewing(path, size=(120, 40)) as driven:
            driven.app.is_following = True
            await driven.pilot.press("G")
            assert driven.lines[-2].rstrip().endswith("following")
            await driven.pilot.press("k")
            assert "following, held here: G goes on" in driven.lines[-2]
