"""The frugal driver's model: after its bytes a terminal shows what the whole frame would have shown."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from spectrace.tui.painted import Painted
from tests.tui.vt import Screen

WIDTH, HEIGHT = 30, 12
STYLES = ["", "1", "2", "7;31", "1;38;5;120", "32;49", "39;49", "48;2;1;2;3", "1;4;33;49"]
TEXTS = ["step", "世界", "naïve ", "   ", "x→y", "0123456789", "e\u0301", " "]

Row = tuple[tuple[str, str], ...]


def frame_of(rows: dict[int, Row], *, is_filled: bool = False) -> str:
    """Rows as Textual sends them: a move, styled pieces each with a reset, a line feed."""
    parts = []
    for y, row in rows.items():
        used = 0
        pieces = [f"\x1b[{y + 1};1H"]
        for style, text in row:
            kept = text if used + cell_len(text) <= WIDTH else ""
            used += cell_len(kept)
            pieces.append(f"\x1b[{style}m{kept}\x1b[0m" if style else kept)
        pieces.append(" " * (WIDTH - used) if is_filled else "")
        parts.append("".join(pieces))
    return "\n".join(parts) + f"\x1b[{min(rows) + 1};1H"


pieces = st.tuples(st.sampled_from(STYLES), st.sampled_from(TEXTS))
row_lists = st.lists(pieces, min_size=1, max_size=8).map(tuple)


def check(frames: Sequence[str]) -> tuple[int, int]:
    """Both ways of drawing show the same after every frame; the bytes of both."""
    plain, frugal, painted = Screen(WIDTH, HEIGHT), Screen(WIDTH, HEIGHT), Painted()
    painted.resize(WIDTH, HEIGHT)
    # Nothing is known of the screen at first, so that what was there must not matter.
    for screen in (plain, frugal):
        screen.feed("".join(f"\x1b[{y + 1};1H{'#' * WIDTH}" for y in range(HEIGHT)))
    sent = 0
    for frame in frames:
        reduced = painted.reduce(frame)
        sent += len(reduced)
        plain.feed(frame)
        frugal.feed(reduced)
        assert frugal.seen == plain.seen
        assert (frugal.y, frugal.x) == (plain.y, plain.x)
    return sent, sum(map(len, frames))


@given(st.lists(st.dictionaries(st.integers(0, HEIGHT - 1), row_lists, min_size=1), min_size=1, max_size=5))
def test_any_frames_show_the_same(frames: list[dict[int, Row]]) -> None:
    """Partial rows, wide characters, combining marks and every kind of style come out right."""
    check([frame_of(dict(sorted(rows.items()))) for rows in frames])


@given(st.integers(0, 2**32), st.lists(st.integers(-4, 4), max_size=8))
def test_scrolled_frames_show_the_same_for_fewer_bytes(seed: int, moves: list[int]) -> None:
    """A list that scrolls between fixed rows is moved by the terminal."""
    rng = random.Random(seed)
    lines = [(("", f"{n:>6} "), (rng.choice(STYLES), rng.choice(TEXTS)), ("1", "end")) for n in range(100)]
    top = 40
    frames = []
    for move in [0, *moves]:
        top += move
        rows = {y: lines[top + y] for y in range(2, HEIGHT - 1)}
        frames.append(frame_of({0: (("1", f"top {top}"),), **rows}, is_filled=True))
    sent, whole = check(frames)
    assert sent <= whole


def test_a_scroll_by_one_sends_one_row() -> None:
    """Nine of ten rows are moved by one short sequence."""
    rows = [(("", f"row {n:>3} text"),) for n in range(20)]
    painted = Painted()
    painted.resize(WIDTH, HEIGHT)
    painted.reduce(frame_of(dict(enumerate(rows[:10])), is_filled=True))
    sent = painted.reduce(frame_of(dict(enumerate(rows[1:11])), is_filled=True))
    assert "\x1b[1M" in sent
    assert len(sent) < 60


def test_a_pane_below_a_scrolled_list_is_sent_where_it_changed() -> None:
    """It changes with the list but does not move with it; a cursor's row moves although its mark changed."""

    def frame(top: int) -> str:
        rows = [("  ", f"row {n:>3} text") for n in range(top, top + 8)]
        rows[7] = ("> ", rows[7][1])
        pane = [("", "-" * 20 + f" {top:>3} " + "-" * 5), ("", f"detail {top}"), ("", "same")]
        return frame_of({y: (("", a + b),) for y, (a, b) in enumerate([*rows, *pane])}, is_filled=True)

    painted = Painted()
    painted.resize(WIDTH, HEIGHT)
    painted.reduce(frame(100))
    sent = painted.reduce(frame(101))
    assert "\x1b[1;8r\x1b[1H\x1b[1M" in sent
    assert "--" not in sent
    assert sent.count("text") == 1
    check([frame(top) for top in (100, 101, 103, 102, 110, 100)])


def test_blanks_within_a_row_cost_a_jump_and_no_style() -> None:
    """A dim row of a table is sent as its words."""
    painted = Painted()
    painted.resize(WIDTH, HEIGHT)
    painted.reduce(frame_of({0: (("32", "one" + " " * 20 + "two"),)}, is_filled=True))
    sent = painted.reduce(frame_of({0: (("2", "six" + " " * 20 + "ten"),)}, is_filled=True))
    assert sent == "\x1b[1;1H\x1b[2msix\x1b[24Gten\x1b[m\x1b[1;1H"


def test_the_same_frame_again_sends_nothing() -> None:
    """What is on the screen already costs no byte."""
    painted = Painted()
    painted.resize(WIDTH, HEIGHT)
    frame = frame_of({3: (("1", "text"),)})
    assert painted.reduce(frame)
    assert painted.reduce(frame) == ""


@pytest.mark.parametrize(
    "strange", ["\x1b[5;1Htext\x1b]8;;link\x07", "\x1b[5;28Hlonger than the row", "\x1b[40;1Hbelow", "a\tb"]
)
def test_what_is_not_understood_passes_and_makes_it_forget(strange: str) -> None:
    """A frame that leaves the screen or holds other escapes is sent as it is, and the next one in full."""
    painted = Painted()
    painted.resize(WIDTH, HEIGHT)
    frame = frame_of({3: (("1", "text"),)})
    full = painted.reduce(frame)
    assert painted.reduce(strange) == strange
    assert painted.reduce(frame) == full


def test_a_new_size_forgets_everything() -> None:
    """A terminal that was resized has cropped or moved its cells."""
    painted = Painted()
    painted.resize(WIDTH, HEIGHT)
    frame = frame_of({3: (("1", "text"),)})
    full = painted.reduce(frame)
    painted.resize(WIDTH + 1, HEIGHT)
    assert painted.reduce(frame) == full
