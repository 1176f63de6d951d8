"""`import`, `export` and `repair`: nothing is lost, nothing is overwritten by accident or half-written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def test_export_import_export_is_the_same_bytes(trace: Path, run: Run, spawn: Run) -> None:
    """JSON lines survive the way through a trace, by file and by pipe."""
    lines = run("export", "run.spectrace").out
    assert run("export", "run.spectrace", "-o", "a.jsonl").out == ""
    assert Path("a.jsonl").read_text() == lines
    assert run("import", "a.jsonl", "-o", "b.spectrace").code == 0
    assert run("export", "b.spectrace").out == lines
    piped = spawn("import", "-", "-o", "c.spectrace", input=lines)
    assert (piped.code, piped.out) == (0, "")
    assert run("export", "c.spectrace").out == lines


def test_import_says_what_came_of_it(trace: Path, run: Run) -> None:
    """The number of steps and the next command are talk, so they go to stderr."""
    run("export", "run.spectrace", "-o", "a.jsonl")
    found = run("import", "a.jsonl", "-o", "b.spectrace")
    assert found.out == ""
    assert found.err == "b.spectrace: 16 steps; next: spectrace view b.spectrace\n"


@pytest.mark.parametrize("command", ["import", "export", "repair"])
def test_an_existing_file_is_kept_unless_told(trace: Path, run: Run, command: str) -> None:
    """Without --overwrite nothing is touched; with it the new file replaces the old one."""
    run("export", "run.spectrace", "-o", "a.jsonl")
    source = "a.jsonl" if command == "import" else "run.spectrace"
    Path("out").write_text("precious")
    refused = run(command, source, "-o", "out")
    assert refused.code == 2
    assert Path("out").read_text() == "precious"
    assert run(command, source, "-o", "out", "--overwrite").code == 0
    assert Path("out").read_bytes() != b"precious"
    assert {path.name for path in Path().iterdir()} == {"a.jsonl", "out", "run.spectrace"}


def test_a_failed_import_keeps_the_old_file(trace: Path, run: Run) -> None:
    """--overwrite replaces a trace by a whole one only."""
    before = Path("run.spectrace").read_bytes()
    Path("bad.jsonl").write_text('{"record":"run","schema":1}\n{"record":"step"}\n')
    assert run("import", "bad.jsonl", "-o", "run.spectrace", "--overwrite").code == 1
    assert Path("run.spectrace").read_bytes() == before
    assert {path.name for path in Path().iterdir()} == {"bad.jsonl", "run.spectrace"}


def test_repair_saves_what_is_whole(trace: Path, run: Run) -> None:
    """A cut trace becomes a sound one, and what is missing is said; the source is not touched."""
    whole = Path("run.spectrace").read_bytes()
    Path("cut.spectrace").write_bytes(whole[:-40])
    found = run("repair", "cut.spectrace", "-o", "saved.spectrace")
    assert found.code == 0
    assert found.out.startswith("saved.spectrace: 16 whole steps")
    assert Path("cut.spectrace").read_bytes() == whole[:-40]
    with_json = run("repair", "cut.spectrace", "-o", "again.spectrace", "--json")
    report = json.loads(with_json.out)
    assert (report["steps"], report["lost"], report["is_clean"]) == (16, 0, False)
    steps = [run("steps", path, "--json").out for path in ("run.spectrace", "saved.spectrace")]
    assert steps[0] == steps[1]


def test_repair_of_a_sound_trace_says_that_nothing_was_damaged(trace: Path, run: Run) -> None:
    """`--compact` makes any trace smaller or equal in what it says."""
    found = run("repair", "run.spectrace", "-o", "packed.spectrace", "--compact")
    assert found.code == 0
    assert found.out.splitlines()[1:] == ["nothing was damaged"]
    assert run("steps", "packed.spectrace").out == run("steps", "run.spectrace").out


IMPATIENT = """
import sys
from spectrace.cli import main, output
output._PATIENCE_S = 0
sys.exit(main())
"""
"""A program whose progress bars do not wait a second."""


def test_long_work_shows_a_bar_to_a_person_only(trace: Path, run: Run, on_a_terminal: Run) -> None:
    """On a terminal each long command shows how far it is and ends at 100 %; a log file gets nothing."""
    for arguments, label in (
        (["export", "run.spectrace", "-o", "a.jsonl"], "exporting"),
        (["import", "a.jsonl", "-o", "b.spectrace"], "importing"),
        (["repair", "b.spectrace", "-o", "c.spectrace"], "repairing"),
        (["stats", "run.spectrace", "--by", "request"], "reading"),
    ):
        shown = on_a_terminal(*arguments, program=IMPATIENT)
        assert shown.code == 0
        assert re.search(rf"{label}  \[#+\]  100%", shown.out), shown.out
        if "stats" in arguments:
            assert label not in on_a_terminal(*arguments).out  # done within a second
        quiet = run(*arguments, *([] if "stats" in arguments else ["--overwrite"]))
        assert label not in quiet.out + quiet.err
