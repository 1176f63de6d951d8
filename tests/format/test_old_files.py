"""Files that an earlier version wrote stay readable, to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

import spectrace
from spectrace.format.jsonl import export_lines, import_lines

ROOT = Path(__file__).parents[2]
LEARNT = 74
"""Bytes by which an index has grown since: the names of the engine's own counts, and their numbers, twice."""
NAMES = ["minimal-v1", "full-v1"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_version_1_says_what_it_always_said(name: str) -> None:
    """The trace that version 1 wrote exports to the lines it was made of, without a problem."""
    expected = (ROOT / f"tests/data/{name}.jsonl").read_text().splitlines()
    with spectrace.open(ROOT / f"sample_traces/{name}.spectrace") as trace:
        assert list(export_lines(trace)) == expected
        assert not trace.problems
        assert trace.state == "closed"


@pytest.mark.parametrize("name", NAMES)
def test_the_same_lines_still_make_the_same_bytes(name: str, tmp_path: Path) -> None:
    """Importing the lines again gives the file, but for its random run id and what an index has learnt."""
    out = tmp_path / "again.spectrace"
    import_lines((ROOT / f"tests/data/{name}.jsonl").read_bytes().splitlines(), out)
    with spectrace.open(out) as again:
        assert list(export_lines(again)) == ((ROOT / f"tests/data/{name}.jsonl").read_text().splitlines())
    assert out.stat().st_size == (ROOT / f"sample_traces/{name}.spectrace").stat().st_size + LEARNT
