"""Exit codes and sentences: 0 fine, 1 trace or recorder at fault, 2 usage, 130 Ctrl-C; no traceback."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from spectrace.testing import write_trace
from tests.format.hostile import head

if TYPE_CHECKING:
    from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["stat", "run.spectrace"], "did you mean stats"),
        (["nothing-like-it"], "spectrace --help lists the commands"),
        (["missing.spectrace"], "'missing.spectrace' does not exist"),
        (["stats", "missing.spectrace"], "'missing.spectrace' does not exist"),
        (["stats"], "Missing argument 'TRACE...'"),
        (["stats", "run.spectrace", "--by", "colour"], "'colour' is not"),
        (["steps", "run.spectrace", "--where", "accptd < 2"], "did you mean accepted"),
        (["steps", "run.spectrace", "--request", "r9"], "no request r9 in run.spectrace"),
        (["steps", "run.spectrace", "--limit", "-1"], "-1 is not in the range"),
        (["view", "run.spectrace", "--at", "16"], "--at 16: the trace has 16 steps, from 0"),
        (["export", "run.spectrace", "-o", "run.spectrace"], "already there; --overwrite replaces it"),
        (["export", "run.spectrace", "-o", "no/where.jsonl"], "the folder no does not exist"),
        (["repair", "run.spectrace", "-o", "no/where.spectrace"], "the folder no does not exist"),
        (["repair", "run.spectrace"], "Missing option '-o'"),
        (["import", "missing.jsonl", "-o", "x.spectrace"], "'missing.jsonl' does not exist"),
    ],
)
def test_a_wrong_command_line_is_two(trace: Path, run: Run, arguments: list[str], sentence: str) -> None:
    """Usage errors exit with 2, say what to do on stderr, and print no data."""
    found = run(*arguments)
    assert (found.code, found.out) == (2, "")
    assert sentence in found.err


def test_a_file_that_is_no_trace_is_one(trace: Path, run: Run) -> None:
    """A sentence on stderr names the file; nothing is printed as data."""
    Path("letter.txt").write_text("Dear Sir or Madam,\n")
    for command in ("stats", "steps", "view", "export"):
        found = run(command, "letter.txt")
        assert (found.code, found.out) == (1, "")
        assert found.err == "spectrace: letter.txt: not a spectrace trace\n"


def test_a_newer_schema_says_what_opens_it(trace: Path, run: Run) -> None:
    """A trace of a later spectrace names both versions and the line to type."""
    Path("new.spectrace").write_bytes(head(schema=99))
    found = run("stats", "new.spectrace")
    assert found.code == 1
    assert "schema 99, this spectrace reads up to 1" in found.err
    assert "pip install -U spectrace-tui" in found.err


def test_an_empty_folder_is_no_run(trace: Path, run: Run) -> None:
    """A directory without traces says what was looked for."""
    Path("empty").mkdir()
    found = run("stats", "empty")
    assert found.code == 1
    assert "holds no *.spectrace file" in found.err


def test_a_bad_json_line_is_one_and_leaves_nothing(trace: Path, run: Run) -> None:
    """Line and field are named, and neither a trace nor a partial file stays behind."""
    lines = run("export", "run.spectrace").out.splitlines()
    lines[6] = lines[6].replace('"num_accepted":', '"num_accepted":"many","was":')
    Path("bad.jsonl").write_text("\n".join(lines))
    before = set(Path().iterdir())
    found = run("import", "bad.jsonl", "-o", "bad.spectrace")
    assert found.code == 1
    assert "bad.jsonl: line 7: " in found.err
    assert "num_accepted" in found.err
    assert set(Path().iterdir()) == before


def test_a_closed_pipe_is_quiet(trace: Path) -> None:
    """`spectrace steps run.spectrace | head` ends without a word and without an error."""
    write_trace("long.spectrace", [{"step": number} for number in range(5_000)])
    for arguments in (["steps"], ["steps", "--json"], ["export"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "spectrace", *arguments, "long.spectrace"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("raised", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "\n"),
        (
            OSError(errno.ENOSPC, "No space left on device", "out.jsonl"),
            1,
            "out.jsonl: No space left on device",
        ),
        (OSError(errno.EIO, "Input/output error"), 1, "spectrace: Input/output error"),
    ],
)
def test_outcomes_of_the_world_have_codes_too(
    trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, sentence: str
) -> None:
    """Ctrl-C is 130 and quiet; a full disk or a broken one is a sentence and 1."""

    def fail(lines: object) -> NoReturn:
        raise raised

    monkeypatch.setattr("spectrace.cli.export.print_lines", fail)
    found = run("export", "run.spectrace")
    assert (found.code, found.out) == (code, "")
    assert sentence in found.err
    assert "Traceback" not in found.err


def test_a_real_process_reports_its_code(trace: Path, spawn: Run) -> None:
    """The code that `main` returns is what the shell sees, by `python -m spectrace`."""
    assert spawn("stats", "run.spectrace").code == 0
    assert spawn("stats", __file__).code == 1
    assert spawn("stats", "missing").code == 2


@pytest.mark.parametrize("command", ["export", "repair"])
def test_a_command_does_not_replace_what_it_reads(run: Run, trace: Path, command: str) -> None:
    """`repair X -o X --overwrite` is refused, and X is as it was."""
    before = trace.read_bytes()
    found = run(command, trace, "-o", trace, "--overwrite")
    assert found.code == 2
    assert "is what is read" in found.err
    assert trace.read_bytes() == before
