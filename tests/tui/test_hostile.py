"""Traces that are empty, damaged or made to harm: shown as what they are, without harm."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.style import Style

import spectrace
from spectrace import TraceWriter
from spectrace.tui.terminal import Terminal
from spectrace.tui.viewer import Viewer
from tests.tui.driving import viewing
from tests.tui.traces import made_step, make_trace

HOSTILE = "\x1b]0;owned\x07\x1b[2J[bold red]\n\r\t\u202e\u200b\x9b31m[/] $(id)"


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_hostile_texts_are_shown_as_escapes(tmp_path: Path, size: tuple[int, int]) -> None:
    """Tokens, request names and words of a trace reach no terminal as control characters."""
    texts = dict.fromkeys(range(90, 120), HOSTILE)
    path = make_trace(
        tmp_path / "bad\x1b[31m.spectrace",
        20,
        texts=texts,
        request=HOSTILE,
        final_kind=HOSTILE,
        stop=HOSTILE,
        flags=[HOSTILE],
        taps=[{"boundary": 1, "shape": [1], "dtype": HOSTILE, "rms": float("nan")}],
        nonfinite={"draft_logits": 3},
        extra_key=HOSTILE,
    )
    async with viewing(path, size=size) as driven:
        await driven.press("j", "t", "t", "enter")
        shown = driven.text
        await driven.press("escape", "/", *"owned", "enter")
        shown += driven.text
    assert "\\x1b" in shown
    assert all(character.isprintable() for line in shown.splitlines() for character in line)


async def test_markup_in_a_token_is_text(tmp_path: Path) -> None:
    """Square brackets style nothing."""
    texts = dict.fromkeys(range(90, 120), "[red]x[/red]")
    path = make_trace(tmp_path / "markup", 5, texts=texts)
    async with viewing(path) as driven:
        assert "[red]x[/red]" in driven.text


async def test_wide_characters_keep_the_columns(tmp_path: Path) -> None:
    """A row of two-cell characters is clipped at the terminal's edge, not behind it."""
    texts = dict.fromkeys(range(90, 120), "世界世界世界世界世界")
    path = make_trace(tmp_path / "wide", 5, texts=texts, request="请求请求请求请求请求")
    async with viewing(path) as driven:
        strips = driven.app.screen._compositor.render_strips()
        assert {strip.cell_length for strip in strips} == {80}
        assert "…" in driven.row_of("  1 请求")


async def test_malformed_arrays_are_shown_as_far_as_they_go(tmp_path: Path) -> None:
    """Arrays of the wrong length leave dashes; ids out of range are numbers."""
    path = make_trace(
        tmp_path / "short",
        4,
        num_accepted=9,
        draft_ids=[2**40],
        target_ids=[],
        target_ranks=[1],
        draft_logprobs=[float("inf"), float("-inf")],
        draft_top=[[]],
        emitted_ids=[-5, 2**50],
    )
    async with viewing(path) as driven:
        assert "9/3" in driven.row_of("  1 req-000")
        await driven.press("j", "l", "l", "enter")
        assert "10995… " in driven.row_of(" 0   =")
        assert "inf" in driven.text


async def test_an_empty_trace_says_what_to_do(tmp_path: Path) -> None:
    """No step: the reason and the next thing to do, and every key stays harmless."""
    path = make_trace(tmp_path / "empty", 0)
    async with viewing(path) as driven:
        assert "This trace holds no step" in driven.text
        await driven.press(*"jkGgfeEnN", "l", "space", ".", "}", "t", "enter", "escape", "/", "x", "enter")
        assert driven.app.is_running
        assert "no step" in driven.text


async def test_damaged_steps_are_a_visible_hole(tmp_path: Path) -> None:
    """Rows of a damaged frame say so, the steps around them are whole, the header counts the damage."""
    path = tmp_path / "damaged"
    ends = []
    with TraceWriter(path, {}, strict=True) as writer:
        for row in range(30):
            writer.step(made_step(row))
            if row % 10 == 9:
                writer.flush()
                ends.append(path.stat().st_size)
    data = bytearray(path.read_bytes())
    data[(ends[0] + ends[1]) // 2] ^= 0xFF
    path.write_bytes(data)
    with spectrace.open(path) as trace:
        holes = [row for row in range(30) if trace.steps.get(row) is None]
    assert holes, "the flipped byte hit no step"
    async with viewing(path, size=(80, 40)) as driven:
        await driven.press(*str(holes[0]), "G")
        assert "damaged" in driven.row_of(f"> {holes[0]:>4}")
        assert "spectrace repair" in driven.text
        await driven.press("g")
        assert "req-000" in driven.row_of("> ")
        await driven.press("/", *"req-002", "enter")
        assert driven.steps.row == 20


async def test_no_colour_means_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR no cell has a colour, and the text is the same as with colours."""
    path = make_trace(tmp_path / "plain", 40)
    async with viewing(path) as driven:
        coloured = driven.text
        styles = _styles(driven.app)
        assert any(style.color is not None and style.color.number == 2 for style in styles)
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal(is_frugal=False, is_ansi=True, has_mouse=False)
    async with viewing(path, terminal=terminal) as driven:
        assert driven.text == coloured
        for style in _styles(driven.app):
            assert style.color is None or style.color.is_default
            assert style.bgcolor is None or style.bgcolor.is_default
        assert any(style.reverse for style in _styles(driven.app))


def _styles(app: Viewer) -> list[Style]:
    strips = app.screen._compositor.render_strips()
    return [segment.style for strip in strips for segment in strip if segment.style is not None]
