"""What a person does in a terminal, from the first key to the last, and what goes wrong on the way."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

import spectrace
from spectrace import TraceWriter
from tests.tui.ptys import PATIENCE, Session
from tests.tui.traces import made_step, make_trace

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")

SAMPLES = Path(spectrace.__file__).parent.parent / "sample_traces"
CAUSE = SAMPLES / "eagle3-taps-normed.spectrace"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of three hundred steps."""
    return make_trace(tmp_path_factory.mktemp("traces") / "run.spectrace", 300)


def test_from_the_start_to_the_cause_and_back() -> None:
    """First rejection, the step, why: the cause is named; back, and out."""
    with Session(CAUSE) as session:
        session.until(r"step 0/\d+")
        session.send("f")
        session.until(r"step 1/\d+ +token 0/\d+ +first rejection")
        session.send("\r")
        session.until("Step · step 1", "target's choice")
        session.send("o")
        session.until("Overview", "tap-form/norm")
        session.send("q")
        session.until(r"step 1/\d+")
        session.send("q")
        assert session.wait() == 0


def test_search_filter_and_undo_in_one_burst(trace: Path) -> None:
    """Everything typed at once, as a slow line delivers it."""
    with Session(trace) as session:
        session.until("step 0/300")
        session.send("&accepted == 3\r/req-020\rnnma&\r0g'a")
        session.until("mark a", r"> +207 ")
        session.send("uu")
        session.until("there is no filter|step 207/300")
        session.send("Q")
        assert session.wait() == 0


def test_a_storm_of_sizes_ends_in_the_last_one(trace: Path) -> None:
    """Twenty changes of size in a row, keys between them; then it is quiet and still obeys."""
    with Session(trace) as session:
        session.until("step 0/300", "── step 0 ")
        for at in range(20):
            session.resize(60 + at * 3, 15 + at % 7)
            session.send("j" if at % 2 else "k")
        session.resize(90, 24)
        session.send("50g")
        session.until("step 50/300", r"> +50 ", r"q quit\Z")
        session.send("q")
        before = len(session.output)
        assert session.wait() == 0
        assert "step 5" not in session.output[before:]


def test_a_terminal_that_goes_away_ends_the_viewer(trace: Path) -> None:
    """The line breaks: the process is gone within a second or so, and nothing is left behind."""
    session = Session(trace)
    session.until("step 0/300", "── step 0 ")
    session.send("j")
    session.until("step 1/300")
    os.close(session._fd)
    deadline = time.monotonic() + PATIENCE
    done = 0
    while not done and time.monotonic() < deadline:
        done, _ = os.waitpid(session.pid, os.WNOHANG)
        time.sleep(0.01)
    if not done:
        os.kill(session.pid, signal.SIGKILL)
        os.waitpid(session.pid, 0)
    assert done, "the viewer goes on without a terminal"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs a shell with job control")
def test_back_to_the_shell_and_again_into_the_viewer(trace: Path, tmp_path: Path) -> None:
    """Ctrl-Z gives the terminal back as it was; fg draws everything again."""
    with Session(trace, shell=True) as session:
        session.until(r"\$")
        session.send('eval "$SPECTRACE_TEST"\n')
        session.until("step 0/300", "── step 0 ")
        session.send("7g\x1a")
        session.until("Stopped|Suspended")
        assert session.output.rfind("\x1b[?1049l") > session.output.rfind("\x1b[?1049h")
        session.send("fg\n")
        session.until("step 7/300", r"> +7 ", "── step 7 ", "j/k move")
        session.send("j")
        session.until("step 8/300")


def test_a_drop_of_acceptance_is_said_while_following(tmp_path: Path) -> None:
    """The newest proposals are refused: the header says so, with its number; a dead writer is named too."""
    path = tmp_path / "live.spectrace"
    go, told = os.pipe()
    child = os.fork()
    if child == 0:
        writer = TraceWriter(path, {}, strict=True)
        for row in range(600):
            writer.step({**made_step(row), "num_accepted": 3, "emitted_ids": [100] * 4})
        writer.flush()
        os.read(go, 1)
        for row in range(600, 800):
            writer.step({**made_step(row), "num_accepted": 0, "emitted_ids": [102]})
        writer.flush()
        signal.pause()
    try:
        while not path.exists() or path.stat().st_size < 500:
            os.sched_yield()
        with Session(path, "--follow", size=(140, 24)) as session:
            session.until("being recorded", "step 599/600", "alpha1 of the last 200: 1.00")
            assert "DROPPED" not in session.screen.lines[0]
            os.write(told, b"x")
            session.until("step 799/800", "alpha1 of the last 200: 0.00, DROPPED")
            os.kill(child, signal.SIGKILL)
            session.until("ended without closing")
            session.send("q")
            assert session.wait() == 0
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_the_mouse_is_asked_for_by_f2_only_over_ssh(trace: Path) -> None:
    """F2 switches it on and off again; at the end it is off."""
    with Session(trace) as session:
        session.until("step 0/300")
        assert "\x1b[?1003h" not in session.output
        session.send("\x1bOQ")
        session.until("mouse on")
        assert "\x1b[?1003h" in session.output
        session.send("\x1bOQ")
        session.until("mouse off")
        assert session.output.rfind("\x1b[?1003l") > session.output.rfind("\x1b[?1003h")
        session.send("q")
        session.wait()


def test_copying_sends_one_sequence_and_moves_nothing(trace: Path) -> None:
    """OSC 52 with the step in base64, after Enter and not before."""
    with Session(trace) as session:
        session.until("step 0/300")
        session.send("y")
        session.until("Enter copies step 0 as JSON")
        assert "\x1b]52;" not in session.output
        session.send("\r")
        session.until("sent to the terminal", "── step 0 ")
        assert len(re.findall(r"\x1b\]52;c;[A-Za-z0-9+/=]+\x07", session.output)) == 1


def test_the_tip_is_said_once(trace: Path, tmp_path: Path) -> None:
    """The first time it stands in the status row, the second time it does not."""
    with Session(trace, environ={"HOME": str(tmp_path)}) as session:
        session.until("said once")
    with Session(trace, environ={"HOME": str(tmp_path)}) as session:
        session.until("step 0/300", "── step 0 ")
        session.send("t")
        session.until("token ids")
        assert "said once" not in session.output
