"""`spectrace steps`: which steps, what is said of each, and what a stranger's text may do: nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import spectrace
from spectrace.testing import write_trace

if TYPE_CHECKING:
    from tests.cli.conftest import Run

NASTY = "\x1b[2J\u202eevil\n[red]x\x9b31m\x00\u200b\x7f"


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ([], list(range(16))),
        (["--limit", "3"], [0, 1, 2]),
        (["--limit", "0"], []),
        (["--request", "r1"], [1, 3, 5, 7, 9, 11, 13, 15]),
        (["--where", "stop"], [14, 15]),
        (["--where", "drafted == accepted and drafted", "--request", "r0"], [6, 8]),
        (["--where", "accepted > 99"], []),
    ],
)
def test_the_steps_asked_for_are_printed(
    trace: Path, run: Run, arguments: list[str], numbers: list[int]
) -> None:
    """One line per step, numbered as in the trace whatever was left out; JSON picks the same steps."""
    text, data = (
        run("steps", "run.spectrace", *arguments),
        run("steps", "run.spectrace", *arguments, "--json"),
    )
    assert (text.code, data.code) == (0, 0)
    assert [int(line.split()[0]) for line in text.out.splitlines()] == numbers
    with spectrace.open("run.spectrace") as opened:
        expected = [(opened.steps[n].request, opened.steps[n].step) for n in numbers]
    found = [json.loads(line) for line in data.out.splitlines()]
    assert [(step["request"], step["step"]) for step in found] == expected


def test_glyphs_tell_what_became_of_each_token(trace: Path, run: Run) -> None:
    """Accepted, first rejected, not reached and the target's own are told apart without colour."""
    line = run("steps", "run.spectrace", "--limit", "5").out.splitlines()[4]
    assert line.endswith('1/3  =" \\"" x"\\n" ·" dog" +92  [corrected]')


def test_ids_are_shown_where_the_trace_holds_no_text(run: Run, tmp_path: Path) -> None:
    """A trace without token texts, such as a redacted one, is still readable."""
    path = write_trace(tmp_path / "t", [{"proposal_ids": [5, 6], "num_accepted": 1}])
    assert run("steps", path).out.split()[-3:] == ["=5", "x6", "+99"]


def test_a_strangers_text_is_shown_as_escapes(run: Run, tmp_path: Path) -> None:
    """No control character of a trace reaches the terminal, whichever command prints it."""
    step = {"request": NASTY, "final_kind": NASTY, "stop": NASTY, "segment": NASTY, "flags": [NASTY]}
    path = write_trace(
        tmp_path / "t",
        [{**step, "proposal_ids": [5, 6]}],
        run={"method": NASTY, "engine": {"name": NASTY}, "target": {"id": NASTY}, "created": NASTY},
        token_text=lambda space, token_id: NASTY,
    )
    commands = [["stats"], ["stats", "--by", "request"], ["steps"], ["view"], ["stats", "--json"], ["export"]]
    for command in [*commands, ["steps", "--json"], ["stats", "--json", "--by", "request"]]:
        found = run(*command, path)
        assert found.code == 0
        assert (found.out + found.err).replace("\n", "").isprintable(), command


def test_a_quote_in_a_token_cannot_fake_another_token(run: Run, tmp_path: Path) -> None:
    """The text of one token never reads as several."""
    path = write_trace(tmp_path / "t", [{"proposal_ids": [5]}], token_text=lambda space, token_id: '" ="x')
    assert r'x"\" =\"x" +"\" =\"x"' in run("steps", path).out


def test_a_damaged_step_leaves_a_hole_in_the_numbers(run: Run, tmp_path: Path) -> None:
    """Numbers stay those of the trace, and the damage is told on stderr."""
    path = write_trace(tmp_path / "t", [{"step": n, "proposal_ids": [n] * 50} for n in range(3_000)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    found = run("steps", path, "--where", "step >= 0")
    lines = [line.split() for line in found.out.splitlines()]
    assert 0 < len(lines) < 3_000
    assert all(int(number.replace(",", "")) == int(step) for number, _, step, *_ in lines)
    assert "problem: " in found.err


def test_colour_is_for_terminals_that_want_it(trace: Path, run: Run, on_a_terminal: Run) -> None:
    """A terminal gets colour, NO_COLOR and a pipe none, and nothing is told by colour alone."""
    plain = run("steps", "run.spectrace").out
    coloured = on_a_terminal("steps", "run.spectrace").out
    assert "\x1b[31m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert on_a_terminal("steps", "run.spectrace", NO_COLOR="1").out == plain


def test_a_summed_step_shows_no_tokens_and_a_long_one_the_first(tmp_path: Path, run: Run) -> None:
    """Sums of a request are no proposal; of a very long proposal the rest is counted."""
    steps = [
        {"step": 0, "position": 1, "proposal_ids": [7] * 6, "num_accepted": 4, "emitted_ids": [7] * 9},
        {"step": 1, "position": 9, "proposal_ids": [7] * 1500, "num_accepted": 0, "emitted_ids": [8]},
    ]
    steps[0]["flags"] = ["summed"]
    write_trace(tmp_path / "run.spectrace", steps)
    summed, long = run("steps", tmp_path / "run.spectrace").out.splitlines()
    assert summed.endswith("4/6  (sums of a request)")
    assert long.endswith("... and 500 more (--json has all) +8")
    assert long.count("7") < 1100


def test_a_request_is_found_by_its_external_id(run: Run, tmp_path: Path) -> None:
    """`--request` takes the name that the engine's client knows; --where says so."""
    steps = [{"request": "0"}, {"request": "1"}]
    requests = [{"request": "0", "external_id": "cmpl-a"}, {"request": "1", "external_id": "cmpl-b"}]
    path = write_trace(tmp_path / "a.spectrace", steps, requests=requests)
    lines = run("steps", path, "--request", "cmpl-b", "--json").out.splitlines()
    assert [json.loads(line)["request"] for line in lines] == ["1"]
    assert run("steps", path, "--request", "cmpl").code == 2
    refused = run("steps", path, "--where", 'external_id == "cmpl-b"')
    assert refused.code == 2
    assert "steps --request takes it" in refused.err
