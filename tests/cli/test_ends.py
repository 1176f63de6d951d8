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
