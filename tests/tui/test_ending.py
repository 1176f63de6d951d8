"""How the viewer ends when its terminal, its server or a signal ends it, and what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.tui.ptys import PATIENCE, Session
from tests.tui.served import free_port, reached, received
from tests.tui.traces import make_trace

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of three hundred steps."""
    return make_trace(tmp_path_factory.mktemp("traces") / "run.spectrace", 300)


def _up(session: Session) -> None:
    """Waits until the app is there: the first paint obeys no keys."""
    session.until("step 0/300", "── step 0 ")
    session.send("j")
    session.until("step 1/300", "── step 1 ")


def _changed(pid: int, options: int = 0) -> int:
    """The wait status of a child once it has ended, or stopped where options say so."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG | options)
        if done:
            return status
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the viewer goes on")


def _modes(session: Session) -> tuple[bool, bool, bool]:
    """Whether the terminal echoes, edits lines, and turns Enter into a newline."""
    attributes = termios.tcgetattr(session._fd)
    return (
        bool(attributes[3] & termios.ECHO),
        bool(attributes[3] & termios.ICANON),
        bool(attributes[0] & termios.ICRNL),
    )


def _until_raw(session: Session) -> None:
    """Waits until the viewer has the terminal again."""
    deadline = time.monotonic() + PATIENCE
    while any(_modes(session)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(_modes(session))


@pytest.mark.parametrize("options", [(), ("--stock-driver",)])
def test_a_terminal_that_closes_while_it_is_drawn_on_ends_the_viewer(
    trace: Path, options: tuple[str, ...]
) -> None:
    """Nobody reads, so that the writing thread and then the loop wait; then the terminal is gone."""
    session = Session(trace, *options, size=(200, 60))
    _up(session)
    session.send("oS" * 100)
    os.close(session._fd)
    assert os.waitstatus_to_exitcode(_changed(session.pid)) == 128 + signal.SIGHUP


def test_a_signal_ends_a_viewer_that_nobody_reads(trace: Path) -> None:
    """The terminal is there and full."""
    with Session(trace, "--stock-driver", size=(200, 60)) as session:
        _up(session)
        session.send("oS" * 1000)
        os.kill(session.pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(_changed(session.pid)) == 128 + signal.SIGTERM
        assert all(_modes(session))


def test_a_terminal_that_closes_ends_a_stopped_viewer(trace: Path) -> None:
    """The kernel sends SIGHUP and SIGCONT to what was stopped there."""
    session = Session(trace)
    _up(session)
    os.kill(session.pid, signal.SIGTSTP)
    assert os.WIFSTOPPED(_changed(session.pid, os.WUNTRACED))
    os.close(session._fd)
    os.kill(session.pid, signal.SIGHUP)
    os.kill(session.pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(_changed(session.pid)) == 128 + signal.SIGHUP


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_gives_the_terminal_back_and_is_the_exit_code(trace: Path, number: signal.Signals) -> None:
    """128 + its number, as shells say it; the modes are those before the first paint."""
    with Session(trace) as session:
        before = _modes(session)
        _up(session)
        assert not any(_modes(session))
        os.kill(session.pid, number)
        assert session.wait() == 128 + number
        assert _modes(session) == before == (True, True, True)


@pytest.mark.parametrize("options", [(), ("--stock-driver",)])
def test_more_signals_than_one_end_it_as_the_first_does(trace: Path, options: tuple[str, ...]) -> None:
    """An impatient Ctrl-C from outside interrupts no end: every mode that was set is taken back."""
    with Session(trace, *options, size=(200, 24)) as session:
        _up(session)
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            os.kill(session.pid, number)
        assert session.wait() == 128 + signal.SIGINT
        assert all(_modes(session))
        for taken_back in ("\x1b[?1004l", "\x1b[?2004l", "\x1b[<u", "\x1b[?1049l", "\x1b[?25h"):
            assert taken_back in session.output[-200:]
        assert "Traceback" not in session.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_app_is_up_gives_the_terminal_back(trace: Path, number: signal.Signals) -> None:
    """The first paint has changed the modes and the screen already."""
    with Session(trace) as session:
        session.until("step 0/300", "── step 0 ")
        os.kill(session.pid, number)
        assert session.wait() == 128 + number
        assert all(_modes(session))
        assert "\x1b[?1049l" in session.output[-400:]


def test_a_stop_under_the_first_paint_is_left_out(trace: Path) -> None:
    """The shell would be left with the screen of a viewer that cannot take it back yet."""
    with Session(trace) as session:
        session.until("step 0/300", "── step 0 ")
        for _ in range(100):
            os.kill(session.pid, signal.SIGTSTP)
            if os.waitpid(session.pid, os.WNOHANG | os.WUNTRACED)[0]:
                # It is up by now, and was stopped in order.
                assert all(_modes(session))
                break
            time.sleep(0.01)
        os.kill(session.pid, signal.SIGCONT)
        _until_raw(session)
        session.send("j")
        session.until("step 1/300", "── step 1 ")
        session.send("q")
        assert session.wait() == 0
        assert all(_modes(session))


def test_ctrl_backslash_under_the_first_paint_is_a_key(trace: Path) -> None:
    """As it is later: it kills nobody who would leave the shell with the viewer's screen."""
    with Session(trace) as session:
        session.until("step 0/300", "── step 0 ")
        session.send("\x1c")
        session.until(r"Ctrl-\\+ does nothing here")
        session.send("q")
        assert session.wait() == 0
        assert all(_modes(session))


@pytest.mark.parametrize("options", [(), ("--stock-driver",)])
def test_a_viewer_that_was_stopped_unasked_goes_on(trace: Path, options: tuple[str, ...]) -> None:
    """SIGSTOP asks nobody; the screen is taken back once and drawn anew."""
    with Session(trace, *options) as session:
        _up(session)
        os.kill(session.pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(_changed(session.pid, os.WUNTRACED))
        before = len(session.output)
        os.kill(session.pid, signal.SIGCONT)
        session.send("5g")
        session.until("step 5/300", "── step 5 ")
        session.send("q")
        assert session.wait() == 0
        assert all(_modes(session))
        after = session.output[before:]
        assert after.count("\x1b[?1049h") == 1
        assert after.count("\x1b[?1049l") == 2


@pytest.mark.parametrize("options", [(), ("--stock-driver",)])
def test_a_stopped_viewer_leaves_the_terminal_to_the_shell(trace: Path, options: tuple[str, ...]) -> None:
    """Echo and line editing are back while it is stopped, and off again when it goes on."""
    with Session(trace, *options) as session:
        _up(session)
        os.kill(session.pid, signal.SIGTSTP)
        assert os.WIFSTOPPED(_changed(session.pid, os.WUNTRACED))
        assert all(_modes(session))
        os.kill(session.pid, signal.SIGCONT)
        _until_raw(session)
        session.send("j")
        session.until("step 2/300", "── step 2 ")


@pytest.mark.parametrize("options", [(), ("--stock-driver",)])
def test_bytes_that_are_not_utf8_end_nothing(trace: Path, options: tuple[str, ...]) -> None:
    """A pasted word in Latin-1, and a stray byte between keys, are read as something else."""
    with Session(trace, *options) as session:
        _up(session)
        os.write(session._fd, b"\x1b[200~caf\xe9 \xff\xfe\x1b[201~")
        os.write(session._fd, b"\xe9jj")
        session.until("step [23]/300")
        session.send("5g")
        session.until("step 5/300", "── step 5 ")
        session.send("q")
        assert session.wait() == 0


def _viewers(server: int, mark: str) -> list[int]:
    """The processes other than the server that have its mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != server:
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
async def test_a_server_ends_with_its_viewers(trace: Path, number: signal.Signals) -> None:
    """Soon, though a reader stays connected and it is asked thrice; killed, nothing can tell the viewer."""
    aiohttp = pytest.importorskip("aiohttp")
    pytest.importorskip("textual_serve")
    port = free_port()
    serve = [sys.executable, "-m", "spectrace", "view", str(trace), "--serve", "--port", str(port)]
    mark = f"SPECTRACE_TEST={port}"
    # Over ssh, where a terminal would get the frugal driver.
    environ = {**os.environ, "SPECTRACE_TEST": str(port), "SSH_CONNECTION": "test", "HOME": "/nonexistent"}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(serve, env=environ, **quiet)  # type: ignore[call-overload]
    try:
        async with aiohttp.ClientSession() as session:
            await reached(session, port)
            reader = await session.ws_connect(f"http://127.0.0.1:{port}/ws?width=80&height=24")
            await received(reader, "step 0/300")
            assert _viewers(server.pid, mark)
            for _ in range(3):
                server.send_signal(number)
            begun = time.monotonic()
            while server.poll() is None or _viewers(server.pid, mark):
                assert time.monotonic() - begun < 10, "aiohttp's own patience is twice that"
                await asyncio.sleep(0.05)
        assert server.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    finally:
        server.kill()
        server.wait()
        for viewer in _viewers(server.pid, mark):
            os.kill(viewer, signal.SIGKILL)
