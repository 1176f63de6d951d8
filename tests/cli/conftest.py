"""Ways to run the command line, and one trace that never changes."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spectrace.cli import main
from spectrace.testing import write_trace

GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Outcome:
    """What a command line left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process, with every exit code as the shell would see it."""

    def run_here(*arguments: str | Path) -> Outcome:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit_:  # shell completion leaves like this
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run_here


@pytest.fixture
def spawn() -> Run:
    """Run a command line in a process of its own."""

    def run_there(*arguments: str | Path, **options: Any) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "spectrace", *map(str, arguments)],
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
            **options,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run_there


RUN = {
    "created": "2026-11-29T12:00:00Z",
    "recorder": {"name": "spectrace_transformers", "version": "0.1.0"},
    "engine": {"name": "transformers", "version": "5.24.0"},
    "method": "draft_model",
    "target": {"id": "demo/target"},
    "draft": {"id": "demo/draft"},
    "verification": {"rule": "greedy", "lossless": True},
    "baseline": {"token_ns": 2_500_000},
}


def _steps() -> list[dict[str, Any]]:
    """Two interleaved requests of eight steps: every outcome, 0 to 3 draft tokens, times, two stops."""
    shapes = [(0, 0), (3, 0), (3, 1), (2, 2), (3, 3), (1, 0), (3, 2), (2, 1)]
    steps, position = [], {"r0": 5, "r1": 9}
    for number in range(len(shapes)):
        for name, order in (("r0", 1), ("r1", -1)):
            drafted, accepted = shapes[order * number]
            proposal = [20 + number + i for i in range(drafted)]
            steps.append(
                {
                    "request": name,
                    "step": number,
                    "position": position[name],
                    "proposal_ids": proposal,
                    "num_accepted": accepted,
                    "emitted_ids": [*proposal[:accepted], 90 + number],
                    "final_kind": "none" if not drafted else "bonus" if drafted == accepted else "corrected",
                    "stop": {"r0": "eos", "r1": "length"}[name] if number == 7 else None,
                    "flags": ["prefill"] if number == 0 else None,
                    "draft_ns": 1_000_000 + 1_000 * number,
                    "verify_ns": 2_000_000,
                    "step_ns": 3_100_000 + 1_000 * number,
                }
            )
            position[name] += accepted + 1
    return [{key: value for key, value in step.items() if value is not None} for step in steps]


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same small trace each time, as run.spectrace in the current folder."""
    monkeypatch.chdir(tmp_path)
    texts = {20: " the", 21: " quick", 22: ' "', 23: "\n", 24: " dog", 90: "\x1b[31m", 91: " cat"}
    return write_trace(
        Path("run.spectrace"),
        _steps(),
        run=RUN,
        requests=[{"request": "r0", "prompt_ids": [1, 2, 3]}, {"request": "r1"}],
        token_text=lambda space, token_id: texts.get(token_id),
    )


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a text with a file of golden/; UPDATE_GOLDEN=1 writes the file, to be looked at in git diff."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), (
            f"if this is meant: UPDATE_GOLDEN=1 and look at {name}"
        )

    return check


def _on_a_terminal(*arguments: str | Path, program: str | None = None, **environment: str) -> Outcome:
    """Run a command line on a terminal; both streams are one, as a person sees them."""
    ours, theirs = pty.openpty()
    start = ["-m", "spectrace"] if program is None else ["-c", program]
    command = [sys.executable, *start, *map(str, arguments)]
    surroundings = {**os.environ, "TERM": "xterm", **environment}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=surroundings) as process:
        os.close(theirs)
        sent = b""
        with contextlib.suppress(OSError):  # Linux: the other end was closed
            while part := os.read(ours, 65536):
                sent += part
        os.close(ours)
    return Outcome(process.returncode, sent.decode().replace("\r\n", "\n"), "")


@pytest.fixture
def on_a_terminal() -> Run:
    """Run a command line as a person does."""
    return _on_a_terminal
