"""The viewer in a real pseudo-terminal: what a person sees, and what goes over the line."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from spectrace import TraceWriter
from tests.tui.ptys import Session, until_equal
from tests.tui.traces import made_step, make_trace

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")

COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|4[0-7]|9[0-7]|10[0-7]|[34]8;[0-9;]*)(?:;[0-9;]*)?m")

JOURNEY = [
    ("jjj", 3),
    ("150G", 150),
    ("jjjjjjjjjjjjjjjj", 166),
    ("kkkkkkkkkkkkkkkkkkkkkkk", 143),
    (" b", 143),
    ("tt", 143),
    ("t", 143),
    ("e", 144),
    ("G", 299),
    ("/req-020\r", 200),
    ("nn", 202),
    ("\x0c", 202),
]
"""Keys, and the step they lead to."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of three hundred steps."""
    return make_trace(tmp_path_factory.mktemp("traces") / "run.spectrace", 300)


def test_the_frugal_driver_shows_the_same_for_a_fraction_of_the_bytes(trace: Path) -> None:
    """Key by key and size by size, both drivers leave the same cells."""
    with Session(trace, "--stock-driver") as plain, Session(trace) as frugal:
        for keys, row in [("", 0), *JOURNEY]:
            plain.send(keys)
            frugal.send(keys)
            for session in (plain, frugal):
                session.until(rf"step {row}/300", rf"── step {row} ", rf"> +{row} ")
            until_equal(plain, frugal)
        for width, height in [(100, 30), (70, 20), (40, 10), (90, 24)]:
            for session in (plain, frugal):
                session.resize(width, height)
                session.until(rf"step {row}/300", rf"> +{row} ", r"q quit\Z")
            until_equal(plain, frugal)
        assert len(frugal.output) < len(plain.output) / 3


def test_nothing_is_sent_while_nothing_happens(trace: Path) -> None:
    """After the answer to a key the line is silent: the next byte is the answer to the next key."""
    with Session(trace) as session:
        session.until("step 0/300", "── step 0 ")
        session.send("j")
        session.until("step 1/300", "── step 1 ")
        before = len(session.output)
        session.send("q")
        assert session.wait() == 0
        rest = session.output[before:]
        assert rest.startswith("\x1b[?")
        assert "step" not in rest


def test_no_colour_reaches_the_terminal_with_no_color(trace: Path) -> None:
    """Not one colour sequence, from the first paint to the last byte; without NO_COLOR there are."""
    outputs = []
    environs: list[dict[str, str]] = [{"NO_COLOR": "1"}, {}]
    for environ in environs:
        with Session(trace, environ=environ) as session:
            session.until("step 0/300", "── step 0 ")
            session.send("/req-020\r?")
            session.until("Help", "Space PgDn")
            session.send("q:q\r")
            assert session.wait() == 0
            outputs.append(session.output)
    assert not COLOUR.search(outputs[0])
    assert COLOUR.search(outputs[1])
    assert "\x1b[1;7m" in outputs[0]


def test_a_burst_before_the_first_paint_is_obeyed(trace: Path) -> None:
    """Keys typed while the program starts are waiting in the terminal."""
    with Session(trace) as session:
        session.send("/req-020\rnnjj")
        session.until("step 204/300", "── step 204 ")


@pytest.mark.parametrize("screen", ["overview", "vocabulary", "tree", "requests", "help"])
def test_the_screen_to_begin_with_is_drawn(trace: Path, screen: str) -> None:
    """It comes while the first paint stands, replaces it, and is all there again after Ctrl-L."""
    title = rf"\A {screen.capitalize()}\b"
    with Session(trace, f"--screen={screen}") as session:
        found = re.search(r"line ([0-9]+)/", "\n".join(session.until(title, r"line [0-9]+/")))
        assert found
        session.send("\x0cj")
        drawn = session.until(title, rf"line {int(found[1]) + 1}/")
    assert sum(line.strip() != "" for line in drawn) > 3


def test_no_mouse_is_asked_for_over_ssh(trace: Path) -> None:
    """The terminal's own selection keeps working."""
    with Session(trace) as session:
        session.until("step 0/300")
        session.send("q")
        session.wait()
        assert "\x1b[?1000h" not in session.output
        assert "\x1b[?1003h" not in session.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(trace: Path, number: signal.Signals) -> None:
    """The alternate screen is left and the cursor shown again."""
    with Session(trace) as session:
        session.until("step 0/300", "── step 0 ")
        session.send("j")
        session.until("step 1/300")
        os.kill(session.pid, number)
        session.wait()
        end = session.output[-400:]
        assert "\x1b[?1049l" in end
        assert "\x1b[?25h" in end


@pytest.mark.parametrize("term", ["dumb", "", "vt100"])
def test_a_terminal_that_cannot_place_text_is_refused_in_words(trace: Path, term: str) -> None:
    """No screen is drawn; the sentence says what to type instead."""
    with Session(trace, environ={"TERM": term}, size=(200, 24)) as session:
        assert session.wait() == 1
        assert "spectrace stats" in session.output
        assert "\x1b[?1049h" not in session.output


def test_following_shows_new_steps_and_says_when_the_writer_died(tmp_path: Path) -> None:
    """Steps appear while they are recorded; a writer that ends without closing is named."""
    path = tmp_path / "live.spectrace"
    child = os.fork()
    if child == 0:
        writer = TraceWriter(path, {}, strict=True)
        for row in range(5):
            writer.step(made_step(row))
        writer.flush()
        signal.pause()
    try:
        while not path.exists() or path.stat().st_size < 500:
            os.sched_yield()
        with Session(path, "--follow", size=(100, 24)) as session:
            session.until("being recorded", "step 4/5", "following")
            os.kill(child, signal.SIGKILL)
            session.until("ended without closing")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
