"""A server of which only some requests were recorded: wherever its counts stand, the part is said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spectrace.testing import step_fields, write_trace
from tests.tui.pages.showing import flat

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def trace_of(folder: Path, part: Any) -> Path:
    """Some steps of a server that was asked for a part of its requests."""
    run = {"engine": {"name": "vllm", "flags": {"SPECTRACE_SAMPLE": part}}}
    return write_trace(folder / "run.spectrace", [step_fields()], run=run)


@pytest.mark.parametrize(("part", "shown"), [("1/2", "1/2"), (0.25, "0.25")])
def test_the_part_is_said_beside_the_counts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Any, shown: str
) -> None:
    """In the first lines of stats, on the viewer's overview and in a report."""
    monkeypatch.chdir(tmp_path)
    path = trace_of(tmp_path, part)
    assert f"sampled: {shown} of the requests" in run("stats", path).out.splitlines()[:6]
    assert f"sampled: {shown} of the requests" in run("stats", path, "--by", "request").out
    assert f"{shown} of the requests" in flat("overview", path)
    assert run("report", path, "-o", "r.md").code == 0
    assert f"Sampled: {shown} of the requests were recorded." in Path("r.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("part", ["all \x1b[2J", "1/0", None, [1, 2], "1/2\n", "2"])
def test_what_is_no_part_is_not_repeated(run: Run, tmp_path: Path, part: Any) -> None:
    """A stranger's header may say anything there."""
    assert "sampled" not in run("stats", trace_of(tmp_path, part)).out
