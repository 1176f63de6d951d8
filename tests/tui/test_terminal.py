"""The viewer in a real pseudo-terminal: what a person sees, and what goes over the line."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.geometry import Size
from textual.messages import InBandWindowResize

from spectrace import TraceWriter
from spectrace.tui import steady
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


def _replace(path: Path) -> None:
    path.unlink()
    make_trace(path, 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Path.unlink, "the file is gone"),
        (lambda path: os.truncate(path, 200), "the file is shorter than it was"),
        (_replace, "another file has its name"),
    ],
)
def test_following_ends_with_the_file(tmp_path: Path, change: Callable[[Path], object], words: str) -> None:
    """Its writer is dead: nobody will add a step to what is gone, and the reader is told."""
    path = tmp_path / "run.spectrace"
    shutil.copy(Path(__file__).parents[2] / "sample_traces" / "killed.spectrace", path)
    with Session(path, "--follow", size=(120, 24)) as session:
        session.until("no recorder writes here now", "following")
        change(path)
        session.until(f"no longer following: {words}")
        session.send("g")
        session.until("step 0/", "── step 0 ")
        assert "following" not in "\n".join(session.screen.lines)


@pytest.mark.parametrize("options", [(), ("--stock-driver",)])
def test_a_click_in_a_window_without_pixels_is_taken_in_cells(trace: Path, options: tuple[str, ...]) -> None:
    """A terminal may report its size as 24 lines, 80 columns and no pixels; sizes of nothing as well."""
    with Session(trace, *options, environ={"SSH_CONNECTION": ""}) as session:
        session.until("step 0/300", "── step 0 ")
        session.send("j")
        session.until("step 1/300")
        for size in ("24;80;0;0", "24;80;480;0", "0;0;0;0", "24;80;0;0"):
            session.send(f"\x1b[48;{size}t\x1b[<0;5;6M\x1b[<0;5;6m")
        session.until("step 2/300", "── step 2 ")
        session.send("7g")
        session.until("step 7/300", "── step 7 ")


def test_a_size_that_no_terminal_has_is_not_drawn_for(trace: Path) -> None:
    """Told in band, while it runs: the screen stays as it was, and the next real size is taken."""
    with Session(trace) as session:
        session.until("step 0/300", "── step 0 ")
        for step, size in enumerate(("0;0", "65535;65535", "999999999;999999999", "24;4000"), 1):
            session.send(f"\x1b[48;{size};0;0tj")
            session.until(f"step {step}/300", f"── step {step} ", r"q quit\Z")
        session.resize(100, 30)
        session.send("\x1b[48;30;100;0;0tj")
        assert len(session.until("step 5/300", "── step 5 ", r"q quit\Z")) == 30


def test_the_sizes_of_the_shell_are_not_those_of_the_terminal(trace: Path) -> None:
    """Exported COLUMNS and LINES neither shape the screen nor hold it when the window changes."""
    with (
        Session(trace, environ={"COLUMNS": "40", "LINES": "²"}) as told,
        Session(trace) as untold,
    ):
        for session in (told, untold):
            session.until("step 0/300", "── step 0 ")
            session.send("j")
            session.until("step 1/300", "── step 1 ")
            session.resize(100, 30)
            session.until("step 1/300", r"q quit\Z")
        until_equal(told, untold)


def test_a_terminal_of_an_absurd_size_is_refused_in_words(trace: Path) -> None:
    """Each cell is kept; the sentence says how the size is put right."""
    with Session(trace, size=(2001, 10)) as session:
        assert session.wait() == 1
        assert "stty cols 80 rows 24" in session.output
        assert "\x1b[?1049h" not in session.output


@pytest.mark.parametrize("options", [(), ("--stock-driver",)])
def test_a_terminal_that_has_no_other_characters_gets_plain_ones(
    trace: Path, options: tuple[str, ...]
) -> None:
    """Rules and bars are drawn with what there is, cell for cell, and a text is `?` where nothing fits."""
    environ = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    with Session(trace, *options, environ=environ) as session:
        session.until("step 0/300", "-- step 0 ")
        session.send("5g")
        rows = session.until("step 5/300", "-- step 5 ")
        assert any("x ????> the" in row for row in rows)
        session.send("q")
        assert session.wait() == 0
        assert session.output.isascii()
        assert r"\u" not in session.output


@pytest.mark.parametrize("driver", ["nosuch", "", "os:path"])
def test_a_driver_that_the_viewer_does_not_know_is_refused_in_words(trace: Path, driver: str) -> None:
    """Only the web server's is known."""
    with Session(trace, environ={"TEXTUAL_DRIVER": driver}, size=(200, 24)) as session:
        assert session.wait() == 1
        assert "unset TEXTUAL_DRIVER" in session.output


def test_answers_on_their_way_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """For half a second after the question, until the last of them is there; else the shell reads them."""
    waits: list[float] = []
    monkeypatch.setattr(LinuxDriver, "disable_input", lambda _: None)
    monkeypatch.setattr(LinuxDriver, "process_message", lambda *_: None)
    monkeypatch.setattr(LinuxDriver, "_query_in_band_window_resize", lambda _: None)
    now = 100.0
    monkeypatch.setattr(steady, "monotonic", lambda: now)
    driver = object.__new__(steady.SteadyDriver)
    driver._is_answered = answered = Event()
    monkeypatch.setattr(answered, "wait", waits.append)
    driver._query_in_band_window_resize()
    driver.disable_input()
    now = 100.375
    driver.disable_input()
    now = 500.0
    driver.disable_input()
    assert waits == [0.5, 0.125, 0.0]
    messages = [InBandWindowResize(True, False), Resize(Size(80, 24), Size(80, 24))]
    for message, is_last in zip(messages, [False, True]):
        driver.process_message(message)
        assert answered.is_set() == is_last
    driver._query_in_band_window_resize()
    assert not answered.is_set()
    driver.process_message(InBandWindowResize(False, False))
    assert answered.is_set()
