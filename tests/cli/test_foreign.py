"""A trace that `import` made of what an engine wrote goes through every command like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.importing.test_sources import DATA, FILES

if TYPE_CHECKING:
    from tests.cli.conftest import Run

COMMANDS = (
    ("stats", "a.spectrace"),
    ("stats", "a.spectrace", "--json"),
    ("stats", "a.spectrace", "--by", "request"),
    ("stats", "a.spectrace", "--by", "context"),
    ("stats", "a.spectrace", "--explain", "2.3"),
    ("steps", "a.spectrace"),
    ("steps", "a.spectrace", "--json", "--where", "accepted < 2"),
    ("diagnose", "a.spectrace", "--full"),
    ("diagnose", "a.spectrace", "--control", "b.spectrace", "--json"),
    ("diff", "a.spectrace", "b.spectrace"),
    ("diff", "a.spectrace", "b.spectrace", "--json"),
    ("report", "a.spectrace", "-o", "report.md"),
    ("report", "a.spectrace", "-o", "report.html"),
    ("pack", "a.spectrace", "-o", "a.zip"),
    ("stats", "a.zip"),
    ("repair", "a.spectrace", "--compact", "-o", "small.spectrace"),
    *(
        ("view", "a.spectrace", "--plain", "--screen", screen)
        for screen in ("overview", "step", "vocabulary", "requests", "taps")
    ),
)


@pytest.mark.parametrize("name", FILES)
def test_every_command_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, name: str) -> None:
    """Nothing fails over ids that are null, sums, or an order that nobody told; equal traces stay equal."""
    monkeypatch.chdir(tmp_path)
    for out in ("a.spectrace", "b.spectrace"):
        found = run("import", DATA / name, "-o", out)
        assert (found.code, found.out) == (0, "")
    for arguments in COMMANDS:
        found = run(*arguments)
        assert found.code == 0, (arguments, found.err)
        assert "Traceback" not in found.err
    assert json.loads(run("diff", "a.spectrace", "b.spectrace", "--json").out)["is_equal"]


def test_what_is_not_known_stands_above_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """`stats` says what a histogram does not tell, and gives no rate per step of sums."""
    monkeypatch.chdir(tmp_path)
    run("import", DATA / "vllm-summary.jsonl", "-o", "a.spectrace")
    assert "not known: step, position: only a histogram is known" in run("stats", "a.spectrace").out
    run("import", DATA / "llama-timings.jsonl", "-o", "b.spectrace")
    rates = json.loads(run("stats", "b.spectrace", "--json").out)["metrics"]
    assert {name for name, value in rates.items() if value is not None} == {"acceptance_rate"}


def test_a_pipe_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawn: Run) -> None:
    """`curl .. | spectrace import -` needs no file."""
    monkeypatch.chdir(tmp_path)
    found = spawn("import", "-", "-o", "a.spectrace", input=(DATA / "sglang.jsonl").read_text())
    assert found.code == 0
    assert "steps; next: spectrace view a.spectrace" in found.err


def test_what_says_nothing_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Lines without a word about speculation are no error, and are told."""
    monkeypatch.chdir(tmp_path)
    found = run("import", DATA / "aiperf.jsonl", "-o", "a.spectrace")
    assert "documents that say nothing about speculation: 1" in found.err


def test_responses_without_numbers_and_pieces_of_a_stream_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """A response whose metrics are null is named with how it ended; of a stream's pieces nothing is said."""
    monkeypatch.chdir(tmp_path)
    whole = (DATA / "vllm-summary.jsonl").read_text().splitlines()[0]
    ended = {"choices": [{"finish_reason": "stop"}], "usage": {"completion_tokens": 3}, "metrics": None}
    piece = {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "a"}}], "metrics": None}
    lines = [json.dumps(piece), whole, json.dumps(ended), json.dumps(piece)]
    Path("a.jsonl").write_text("\n".join(lines))
    found = run("import", "a.jsonl", "-o", "a.spectrace")
    assert found.code == 0
    assert '1 response left out, "metrics" is null (finish_reason stop 1): the engine gives' in found.err
    assert "documents that say nothing" not in found.err


def test_a_wrong_name_is_a_wrong_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """--from takes the names that help lists."""
    monkeypatch.chdir(tmp_path)
    found = run("import", DATA / "aiperf.jsonl", "-o", "a.spectrace", "--from", "nobody")
    assert found.code == 2
    assert "aiperf" in found.err
