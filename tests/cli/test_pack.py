"""`spectrace pack`: what it writes, what it shows before, how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spectrace.testing import write_trace
from tests.cli.conftest import Run


def test_a_pack_is_read_by_every_command(trace: Path, run: Run) -> None:
    """A pack stands wherever a trace does, and the numbers in it are the same."""
    assert run("pack", trace, "-o", "a.zip").code == 0
    whole, small = (json.loads(run("stats", path, "--json").out) for path in (trace, "a.zip"))
    for name in ("counts", "metrics", "positions", "times"):
        assert small[name] == whole[name]
    for command in ("steps", "diagnose", "export", "view"):
        assert run(command, "a.zip").code == 0
    assert run("a.zip").out.startswith("a.zip: closed")
    assert run("repair", "a.zip", "-o", "whole.spectrace").code == 0
    assert run("report", "a.zip", "-o", "r.md").code == 0


def test_an_exported_pack_is_imported_again(trace: Path, run: Run) -> None:
    """Unknown ids survive JSON lines: export, import, export gives the same bytes."""
    run("pack", trace, "-o", "a.zip")
    first = run("export", "a.zip").out
    Path("a.jsonl").write_text(first)
    assert run("import", "a.jsonl", "-o", "b.spectrace").code == 0
    assert run("export", "b.spectrace").out == first
    assert '"proposal_ids":[null,null,null]' in first


def test_the_sender_learns_which_request_is_which(trace: Path, run: Run) -> None:
    """Names that the pack does not hold are told to the one who made it."""
    assert "r0 is" not in run("pack", trace, "-o", "a.zip").out  # it kept its name
    other = write_trace(trace.with_name("b.spectrace"), [{"request": "mine"}])
    assert "r0 is mine" in run("pack", other, "-o", "b.zip").out


def test_a_dry_run_writes_nothing_and_shows_examples(trace: Path, run: Run, tmp_path: Path) -> None:
    """Each field stands with a value of it and with what would leave; no file appears."""
    before = set(tmp_path.iterdir())
    found = run("pack", trace, "--dry-run", "-o", "a.zip")
    assert set(tmp_path.iterdir()) == before
    assert found.out.startswith("Nothing was written.")
    fields = {
        entry["field"]: entry for entry in json.loads(run("pack", trace, "--dry-run", "--json").out)["fields"]
    }
    assert fields["emitted_ids"]["leaves_as"] == [None] * len(fields["emitted_ids"]["example"])
    assert fields["target.id"]["leaves_as"] is None
    assert fields["position"]["leaves_as"] == fields["position"]["example"]
    assert fields["emitted_ids"]["action"] == "reduced"
    same = [entry for entry in fields.values() if entry["leaves_as"] == entry["example"]]
    assert same
    assert {entry["action"] for entry in same} == {"kept"}


def test_a_dry_run_knows_what_is_included(trace: Path, run: Run) -> None:
    """With --include the list says what would leave then."""
    listed = json.loads(
        run("pack", trace, "--dry-run", "--json", "--include", "text", "--include", "paths").out
    )
    fields = {entry["field"]: entry for entry in listed["fields"]}
    assert fields["emitted_ids"]["leaves_as"] == fields["emitted_ids"]["example"]
    assert fields["target.id"]["leaves_as"] == "demo/target"


def test_json_is_the_manifest(trace: Path, run: Run) -> None:
    """--json prints what manifest.json says, and the size."""
    found = json.loads(run("pack", trace, "-o", "a.zip", "--json").out)
    assert found["size"] == Path("a.zip").stat().st_size
    assert found["steps"] == 16


@pytest.mark.parametrize("size", ["", "24", "24mb", "1.5MB", "900kB", "2MiB"])
def test_sizes_are_read(trace: Path, run: Run, size: str) -> None:
    """A size is a number with or without a unit."""
    wanted = ["--max-size", size] if size and size != "24" else []
    assert run("pack", trace, "-o", "a.zip", *wanted).code == 0


@pytest.mark.parametrize("size", ["many", "1TB", "-5", "1e9"])
def test_sizes_that_are_none_are_refused(trace: Path, run: Run, size: str) -> None:
    """A size that is none is the caller's fault."""
    found = run("pack", trace, "-o", "a.zip", "--max-size", size)
    assert found.code == 2
    assert "--max-size" in found.err


def test_nothing_is_written_over(trace: Path, run: Run) -> None:
    """OUT is never replaced unless asked for, and -o is needed."""
    assert run("pack", trace).code == 2
    assert run("pack", trace, "-o", "a.zip").code == 0
    assert run("pack", trace, "-o", "a.zip").code == 2
    assert run("pack", trace, "-o", "a.zip", "--overwrite").code == 0
    assert run("pack", trace, "-o", trace, "--overwrite").code == 2


def test_a_limit_too_small_leaves_no_file(trace: Path, run: Run) -> None:
    """What does not fit is refused, exit code 1, and nothing is left."""
    assert run("pack", trace, "-o", "a.zip", "--max-size", "100").code == 1
    assert not Path("a.zip").exists()
