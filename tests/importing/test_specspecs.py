"""The parquet files of specspecs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.cli import main
from spectrace.errors import ImportFailed, UsageError
from spectrace.importing.sources import import_parquet
from tests.importing.test_sources import DATA

DRAFTS = DATA / "specspecs/drafts-1-00000.parquet"


def opened(path: Path, tmp_path: Path) -> Any:
    """The trace of a file of drafts."""
    out = tmp_path / "out.spectrace"
    out.unlink(missing_ok=True)
    import_parquet(path, out)
    return spectrace.open(out)


def test_what_specspecs_wrote_comes_out(tmp_path: Path) -> None:
    """Each step without the token that the step before emitted; prompts from the file beside."""
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(DRAFTS).to_pylist()
    prompts = parquet.read_table(DRAFTS.with_name("sequences-1-00000.parquet")).to_pylist()
    with opened(DRAFTS, tmp_path) as trace:
        assert len(trace) == len(rows)
        assert {r.request: list(r.prompt_ids) for r in trace.requests} == {
            p["sequence_id"]: p["prompt_token_ids"] for p in prompts
        }
        by_name = {(row["sequence_id"], row["step"]): row for row in rows}
        for step in trace:
            row = by_name[step.request, step.step]
            cut = int(step.step > 0)
            assert list(step.proposal_ids) == row["draft_tokens"][cut:]
            assert step.num_accepted == row["acceptance_length"] - cut
            assert step.emitted_ids[-1] == row["emitted_token"]


def test_drafts_that_do_not_begin_with_the_last_token_are_whole(tmp_path: Path) -> None:
    """One step that begins otherwise shows that nothing is repeated."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    rows = parquet.read_table(DRAFTS).to_pylist()
    rows[1]["draft_tokens"] = [7, 7]
    rows[1]["acceptance_length"] = 1
    path = tmp_path / "drafts-2.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with opened(path, tmp_path) as trace:
        assert sorted(step.num_accepted for step in trace) == sorted(row["acceptance_length"] for row in rows)
        assert "position" in trace.run.capture.unavailable


def test_the_command_tells_parquet_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`spectrace import drafts-..parquet` needs no --from."""
    pytest.importorskip("pyarrow")
    assert main(["import", str(DRAFTS), "-o", str(tmp_path / "out.spectrace")]) == 0
    assert "6 steps" in capsys.readouterr().err


def test_without_pyarrow_one_sentence_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra is named; nothing is written."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'spectrace-tui\[parquet\]'"):
        import_parquet(DRAFTS, tmp_path / "out.spectrace")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    """Cut, changed, or of other columns."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    whole = DRAFTS.read_bytes()
    path = tmp_path / "drafts-3.parquet"
    cuts = [whole[:at] for at in range(4, len(whole), len(whole) // 20)]
    flips = [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(4, len(whole), 701)]
    for data in (*cuts, *flips):
        path.write_bytes(data)
        try:
            opened(path, tmp_path).close()
        except ImportFailed as error:
            assert str(error).isprintable()  # noqa: PT017
    parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(ImportFailed, match="no column sequence_id"):
        opened(path, tmp_path)
    shutil.copy(DRAFTS.with_name("sequences-1-00000.parquet"), path)
    with pytest.raises(ImportFailed, match="no column"):
        opened(path, tmp_path)
