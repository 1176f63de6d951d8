"""How the command ends when something outside ends it: signals, closed streams."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and descriptors of Unix")
PROGRAM = [sys.executable, "-m", "spectrace"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_in_order_and_leaves_nothing_half_written(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The exit code names the signal; the file that was being written is not there."""
    out = tmp_path / "out.spectrace"
    with subprocess.Popen(
        [*PROGRAM, "import", "-", "-o", str(out)], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b'{"record": "run", "schema": 1}\n')
        process.stdin.flush()
        # It is at work: the header is written.
        while not any(path.stat().st_size for path in tmp_path.iterdir()):
            assert process.poll() is None
            select.select([process.stderr], [], [], 0.01)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
        assert b"Traceback" not in process.stderr.read()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["stats", "view"])
def test_closed_streams_are_no_crash(trace: Path, closed: str, command: str) -> None:
    """A service without a terminal may start the command with its streams closed."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, command, "run.spectrace"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert ("accept length" in done.stdout) is (">&-" not in closed.replace("2>&-", ""))


_IMPATIENT = """
import atexit, os, signal, sys

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == when:
            interrupt()

when = sys.argv.pop(1)
sys.meta_path.insert(0, Impatient())
if when == "the end":
    atexit.register(interrupt)
from spectrace.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("when", ["spectrace.cli", "spectrace.cli.stats", "the end"])
def test_ctrl_c_is_silent_at_any_time(trace: Path, when: str) -> None:
    """While modules are loaded, while the command runs, and when it is done."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPATIENT, when, "stats", "run.spectrace"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 130
    assert done.stderr.strip() == ""
    assert ("accept length" in done.stdout) is (when == "the end")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
@pytest.mark.parametrize(
    "arguments", [["view", "--plain"], ["stats"], ["steps", "--limit", "1"], ["view", "--keys"]]
)
def test_a_full_device_is_one_sentence(trace: Path, arguments: list[str]) -> None:
    """What could not be written is not tried once more at the end."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >/dev/full', "sh", *PROGRAM, *arguments, "run.spectrace"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if "No space left" in line or "Exception" in line]
    assert told == ["spectrace: No space left on device"]
