"""`spectrace diagnose`: one screen for a person, one object for a program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spectrace.testing import write_trace

Run = Callable[..., Any]


def broken(path: Path, name: str = "lm_head.weight", **header: Any) -> Path:
    """Write a trace whose draft lacks its head."""
    run = {
        "method": "eagle3",
        "target": {"vocab_size": 1000},
        "draft": {"head_rows": 1000, "parameters": {"missing": [name]}},
        **header,
    }
    steps = [
        {"request": f"r{n % 6}", "step": n // 6, "position": 5 + n // 6, "draft_entropy": [6.9] * 3}
        for n in range(240)
    ]
    return write_trace(path, steps, run=run)


def test_the_cause_stands_first_with_evidence_and_what_to_do(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person reads the finding, its numbers, the next move, then what was cleared and not checked."""
    monkeypatch.chdir(tmp_path)
    outcome = run("diagnose", broken(Path("t.spectrace")).name)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert "certain: draft-head/not-loaded" in lines
    order = [outcome.out.index(word) for word in ("missing: lm_head", "next: ", "cleared: ", "could not be")]
    assert order == sorted(order)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24


def test_json_has_the_three_lists_of_the_contract(run: Run, tmp_path: Path) -> None:
    """A program finds findings with id, strength, summary, evidence and steps, and the two other lists."""
    outcome = run("diagnose", "--json", broken(tmp_path / "t.spectrace"))
    found = json.loads(outcome.out)
    first = found["findings"][0]
    assert {"id", "strength", "summary", "evidence", "steps"} <= set(first)
    assert (first["id"], first["strength"]) == ("draft-head/not-loaded", "certain")
    assert first["evidence"]["alpha1"]["n"] == 240
    assert {"id", "summary", "evidence"} <= set(found["cleared"][0])
    assert {"id", "reason", "how", "missing"} <= set(found["not_checked"][0])


def test_nothing_found_is_exit_code_0_too(run: Run, trace: Path) -> None:
    """A trace in order is told so, and what could not be checked is listed."""
    outcome = run("diagnose", trace)
    assert outcome.code == 0
    assert "Nothing found. That is no proof of health: " in outcome.out
    assert " cleared, " in outcome.out
    assert "hint: workload/too-small" in outcome.out
    assert "could not be checked:" in outcome.out


def weak(path: Path, accepted: int, **header: Any) -> Path:
    """Write a trace of 40 proposals, so many of them accepted."""
    steps = [
        {
            "request": "r0", "step": n, "position": 5 + 2 * n, "proposal_ids": [7],
            "num_accepted": int(n < accepted), "emitted_ids": [7, 8] if n < accepted else [8],
        }
        for n in range(40)
    ]  # fmt: skip
    return write_trace(path, steps, run=header)


@pytest.mark.parametrize(
    ("header", "accepted", "words"),
    [
        (
            {"method": "eagle3", "training": {"first_position_accuracy": 0.8}},
            8,
            ["spectrace probe t.spectrace", "--control self-draft", "training declared 0.80"],
        ),
        (
            {"method": "draft_model", "training": {"first_position_accuracy": True}},
            8,
            ["--control self-draft"],
        ),
        ({"method": "draft_model"}, 36, []),
        ({"method": "ngram"}, 2, ["2 of 40 times", "texts that repeat themselves"]),
    ],
)
def test_nothing_found_of_a_weak_draft_says_what_to_do(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    header: dict[str, Any],
    accepted: int,
    words: list[str],
) -> None:
    """The tests that this trace can have, the sharpest first; nothing where acceptance is good."""
    monkeypatch.chdir(tmp_path)
    out = run("diagnose", weak(Path("t.spectrace"), accepted, **header).name).out
    said = " ".join(out.split())
    assert "Nothing found." in said
    assert ("next: " in said) is bool(words)
    places = [said.index(word) for word in words]
    assert places == sorted(places)
    assert len(out.splitlines()) <= 24
    assert max(map(len, out.splitlines())) <= 80


def test_texts_from_the_file_are_shown_as_escapes(run: Run, tmp_path: Path) -> None:
    """A parameter name with a terminal escape does not reach the terminal."""
    outcome = run("diagnose", broken(tmp_path / "t.spectrace", "lm_head\x1b[2J\n\u202eweight"))
    assert "\x1b" not in outcome.out
    assert "\u202e" not in outcome.out
    assert "lm_head\\x1b[2J\\n\\u202eweight" in outcome.out


def test_a_control_is_compared(run: Run, tmp_path: Path) -> None:
    """With a second trace the rules for two traces answer."""
    one, other = broken(tmp_path / "a.spectrace"), broken(tmp_path / "b.spectrace")
    outcome = run("diagnose", "--json", one, "--control", other)
    found = json.loads(outcome.out)
    assert "alpha1_of_control" in found["findings"][0]["evidence"]
    reasons = {item["id"]: item["reason"] for item in found["not_checked"]}
    assert "second trace" not in reasons.get("numeric-tie", "")


def test_a_file_that_is_no_trace_is_exit_code_1(run: Run, tmp_path: Path) -> None:
    """The sentence names the file."""
    path = tmp_path / "x.spectrace"
    path.write_bytes(b"not a trace")
    outcome = run("diagnose", path)
    assert outcome.code == 1
    assert "x.spectrace" in outcome.err


SAMPLES = sorted((Path(__file__).parents[2] / "sample_traces").glob("*.spectrace"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_fits_one_screen(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """80 columns, 24 lines, and no cause under one name in both lists."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(path.parent)
    lines = run("diagnose", path.name).out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    text = " ".join(line.strip() for line in lines)
    assert " 1 prompts" not in text
    assert "judged" not in text
    cleared, _, others = (
        text.partition("cleared: ")[2].removesuffix(" (--full says why)").partition(" could not be checked: ")
    )
    assert cleared
    assert others
    assert not set(cleared.split(", ")) & set(others.split(", "))
    assert "/" not in cleared + others, "an id where words belong"


def test_full_says_of_every_cause_why(run: Run, tmp_path: Path) -> None:
    """What was seen of each that is cleared, what is missing of each that is open, all evidence."""
    path = broken(tmp_path / "t.spectrace")
    brief, full = run("diagnose", path).out, run("diagnose", path, "--full").out
    assert "no draft_kv_length" in full
    assert "no draft_kv_length" not in brief
    assert "what if: of the draft tokens" not in brief
    assert full.index("draft-head/not-loaded") < full.index("cleared:") < full.index("could not be checked:")


def test_more_findings_are_said_in_a_sentence(run: Run, tmp_path: Path) -> None:
    """The likeliest cause has the room; the others are named with what they are."""
    header: dict[str, Any] = {
        "target": {"vocab_size": 1000, "num_layers": 4},
        "taps": {"declared": [2, 99], "origin": "guess"},
    }
    out = run("diagnose", broken(tmp_path / "t.spectrace", **header)).out
    assert "certain: draft-head/not-loaded\n" in out
    assert "also certain: tap-layer/out-of-range: The draft asks for layers" in " ".join(out.split())


def test_the_state_of_the_file_is_one_line(run: Run, tmp_path: Path) -> None:
    """Cut short, damaged, of two runs: whoever reads the diagnosis knows, also a program."""
    whole = broken(tmp_path / "a.spectrace")
    cut = tmp_path / "cut.spectrace"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    damaged = bytearray(whole.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path / "bad.spectrace").write_bytes(damaged)
    other = write_trace(tmp_path / "b.spectrace", [{}], run={"method": "ngram"})

    def note(*paths: Path) -> str:
        lines = " ".join(run("diagnose", *paths).out.split()).partition(" accept length")[0]
        return lines.partition("the file: ")[2]

    assert note(whole) == ""
    assert note(cut).startswith("ended without closing")
    assert note(tmp_path / "bad.spectrace").startswith("problem: ")
    assert "these files are of different runs" in note(whole, other)
    data = json.loads(run("diagnose", "--json", cut).out)
    assert data["state"] == "unclosed"
    assert data["problems"]


@pytest.mark.parametrize("columns", ["40", "200"])
def test_lines_fit_the_terminal(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """A narrow terminal gets narrow lines; a wide one is not filled to the edge."""
    monkeypatch.setenv("COLUMNS", columns)
    outcome = run("diagnose", broken(tmp_path / "t.spectrace"))
    longest = max(map(len, outcome.out.splitlines()))
    assert longest <= min(int(columns), 100)
