"""Every output format of the commands, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run

Golden = Callable[[str, str], None]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("help.help", ["--help"]),
        ("stats.txt", ["stats", "run.spectrace"]),
        ("stats.json", ["stats", "run.spectrace", "--json"]),
        ("stats_by_request.txt", ["stats", "run.spectrace", "--by", "request"]),
        ("stats_by_request.json", ["stats", "run.spectrace", "--by", "request", "--json"]),
        ("stats_by_context.txt", ["stats", "run.spectrace", "--by", "context"]),
        ("stats_explain.txt", ["stats", "run.spectrace", "--explain", "1.286"]),
        ("stats_explain.json", ["stats", "run.spectrace", "--explain", "53%", "--json"]),
        ("steps.txt", ["steps", "run.spectrace"]),
        ("steps.jsonl", ["steps", "run.spectrace", "--json", "--limit", "4"]),
        ("export.jsonl", ["export", "run.spectrace"]),
    ],
)
def test_output_is_what_a_person_last_looked_at(
    trace: Path, run: Run, golden: Golden, name: str, arguments: list[str]
) -> None:
    """A change of any format is seen in review and not by its users."""
    found = run(*arguments)
    assert (found.code, found.err) == (0, "")
    golden(name, found.out)


def test_text_for_a_person_fits_eighty_columns(trace: Path, run: Run) -> None:
    """What stats prints is read over SSH in a small terminal."""
    for arguments in (["stats", "run.spectrace", "--by", "request"], ["--help"]):
        assert max(map(len, run(*arguments).out.splitlines())) <= 80
