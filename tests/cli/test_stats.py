"""`spectrace stats`: the state of a file is always said, and steps are only read when asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from spectrace import TraceWriter
from spectrace.analysis.acceptance import BY_DEPTH, METRICS
from spectrace.format.tracefile import TraceFile
from spectrace.testing import step_fields, write_trace

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def _stats(run: Run, *arguments: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("stats", "--json", *arguments).out)
    return found


def test_every_metric_is_printed_with_its_formula(trace: Path, run: Run) -> None:
    """What is computed is named and explained where it is printed."""
    text, data = run("stats", "run.spectrace").out, _stats(run, "run.spectrace")
    assert list(data["metrics"]) == [metric.name for metric in METRICS]
    for metric in METRICS:
        if metric is BY_DEPTH:
            continue  # of chains it is the acceptance rate again
        line = next(
            line for line in text.splitlines() if line.startswith(metric.name.replace("_", " ") + "  ")
        )
        assert line.endswith(metric.formula)
        assert f"{data['metrics'][metric.name]:.3f}" in line


def test_steps_are_read_only_for_by_request(trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stats of any size cost the index alone."""
    expected = run("stats", "run.spectrace").out

    def fail(*arguments: object) -> NoReturn:
        raise AssertionError("a step was read")

    for name in ("chunks", "chunk_at", "chunk"):
        monkeypatch.setattr(TraceFile, name, fail)
    assert run("stats", "run.spectrace").out == expected


def test_requests_add_up_to_the_run(trace: Path, run: Run) -> None:
    """`--by request` gives the groups under one line on the run, which the whole summary would bury."""
    data = _stats(run, "run.spectrace", "--by", "request")
    for name in ("steps", "proposals", "drafted", "accepted", "emitted"):
        assert sum(entry[name] for entry in data["by_request"].values()) == data["counts"][name]
    lines = run("stats", "run.spectrace", "--by", "request").out.splitlines()
    assert lines[0].startswith("run.spectrace: 14 proposals, accept length ")
    assert lines[1] == ""
    assert lines[3].startswith("request ")


def test_a_trace_without_proposals_has_dashes_and_nulls(run: Run, tmp_path: Path) -> None:
    """Missing is not zero."""
    path = write_trace(tmp_path / "t", [{"proposal_ids": []}])
    data, text = _stats(run, path), run("stats", path).out
    assert set(data["metrics"].values()) == {None}
    assert re.search(r"^accept length +-  1 \+ accepted", text, re.MULTILINE)


def test_an_unclosed_trace_says_so(trace: Path, run: Run) -> None:
    """A run that was killed opens, and its state is the first thing printed."""
    whole = Path("run.spectrace").read_bytes()
    cut = Path("cut.spectrace")
    cut.write_bytes(whole[: len(whole) // 2])
    data, text = _stats(run, cut), run("stats", cut).out
    assert data["state"] == "unclosed"
    assert text.startswith("cut.spectrace: ended without closing")
    assert [f"problem: {sentence}" in text for sentence in data["problems"]] == [True] * len(data["problems"])
    assert data["problems"]


def test_declared_losses_are_shown(run: Run, tmp_path: Path) -> None:
    """Steps that the recorder offered and could not write are part of the answer."""
    path = tmp_path / "t"
    with TraceWriter(path, {}) as writer:
        writer.step(step_fields())
        writer.gap(lost=7, reason="disk full")
    assert _stats(run, path)["gaps"] == [{"lost": 7, "reason": "disk full"}]
    assert "lost: 7 steps, disk full\n" in run("stats", path).out


def test_several_files_are_one_run(run: Run, tmp_path: Path) -> None:
    """Ranks are added up, given one by one or as their folder."""
    for rank in range(2):
        write_trace(tmp_path / f"rank{rank}.spectrace", [{"request": f"r{rank}", "rank": rank}] * 3)
    files = sorted(tmp_path.glob("*.spectrace"))
    data = _stats(run, *files)
    assert (data["counts"]["steps"], data["requests"]) == (6, 2)
    assert _stats(run, tmp_path) == data


@pytest.mark.parametrize(
    "header",
    [
        {"baseline": 7, "target": 7, "engine": [1], "method": {"a": 1}, "created": [1]},
        {"baseline": {"token_ns": "x", "compared_tokens": "y", "difference": 3}, "engine": {"name": 7}},
        {"baseline": {"token_ns": [], "difference": {"token": "x"}}, "verification": "greedy"},
    ],
)
def test_a_header_of_wrong_types_is_no_exception(run: Run, tmp_path: Path, header: dict[str, Any]) -> None:
    """What a stranger's header holds instead of what belongs there is left out, and said."""
    path = write_trace(tmp_path / "t", [{"step_ns": 5}], run=header)
    found = run("stats", path)
    assert (found.code, found.err) == (0, "")
    assert "problem: run: " in found.out
    assert run("stats", "--json", path).code == 0


def test_a_header_with_impossible_numbers_is_still_json(run: Run, tmp_path: Path) -> None:
    """NaN out of a stranger's header is text in JSON and no exception."""
    steps = [{"step_ns": 5, "num_accepted": 1}]
    path = write_trace(tmp_path / "t", steps, run={"baseline": {"token_ns": float("nan")}})
    assert _stats(run, path)["times"]["speedup"] == "NaN"
    assert run("stats", path).code == 0


def test_a_number_printed_elsewhere_is_explained(run: Run, trace: Path) -> None:
    """The formula, who uses it, and what the usual one would be; the summary stays away."""
    found = run("stats", trace, "--explain", "1.286").out
    assert "\n\n1.286 is given by several formulas over these steps:\n" in found
    assert "accept length without bonus 1.286: accepted / proposals" in found
    assert "vLLM's is 2.286 here" in found
    assert "requests  " not in found


def test_a_number_that_nothing_gives_gets_the_nearest(run: Run, trace: Path) -> None:
    """And a word on which other steps it may be of."""
    found = run("stats", trace, "--explain", "2.31").out
    assert "\n\nNo formula over these steps gives 2.31. The nearest are:\n" in found
    assert "a server's average" in found


def test_a_number_far_from_all_has_no_nearest(run: Run, trace: Path) -> None:
    """A value of a quarter more or less is no help."""
    found = run("stats", trace, "--explain", "99").out
    assert "\n\nNo formula over these steps gives 99 or comes near.\n" in found
    assert "used by" not in found
    assert _stats(run, trace, "--explain", "99")["explain"]["nearest"] == []


def test_what_is_no_number_cannot_be_explained(run: Run, trace: Path) -> None:
    """A wrong argument is two, before anything is read."""
    found = run("stats", trace, "--explain", "\x1b[2Jx")
    assert (found.code, found.out) == (2, "")
    assert "such as 2.31 or 46.7%" in found.err
    assert "\x1b" not in found.err


def test_a_trace_without_a_proposal_explains_nothing(run: Run, tmp_path: Path) -> None:
    """No division by zero, and a reason."""
    path = write_trace(tmp_path / "t", [{"proposal_ids": [], "num_accepted": 0, "emitted_ids": [3]}])
    assert run("stats", path, "--explain", "2").out.endswith("to count.\n")
    assert "\n1 is given by one formula" in run("stats", path, "--explain", "1").out
    assert run("stats", path, "--by", "request").code == 0
    assert run("stats", write_trace(tmp_path / "e", []), "--explain", "1").out.endswith("to count.\n")


@pytest.mark.parametrize("by", ["request", "segment", "context", "batch_row"])
def test_groups_are_shown_as_text_and_as_json(run: Run, trace: Path, by: str) -> None:
    """Every breakdown has the metrics and the rates per position; missing fields are said."""
    data = _stats(run, trace, "--by", by)
    groups = data[f"by_{by}"]
    assert sum(group["proposals"] for group in groups.values()) == data["counts"]["proposals"]
    assert all(group["positions"][0]["unconditional"] == group["alpha1"] for group in groups.values())
    text = run("stats", trace, "--by", by).out
    assert ("not recorded" in text) is (by in ("segment", "batch_row"))
    assert ("No step says its" in text) is (by in ("segment", "batch_row"))
    assert max(map(len, text.splitlines())) <= 80
    assert ("mean over the requests" in text) is (by == "request")


def test_a_long_name_of_a_group_fits_the_terminal(run: Run, tmp_path: Path) -> None:
    """A name is cut, the numbers are not."""
    path = write_trace(tmp_path / "t", [{"request": "r" * 60}, {"request": "s" * 60}])
    lines = run("stats", path, "--by", "request").out.splitlines()[1:]
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("rrrrrrrr") for line in lines)


def test_a_reported_number_needs_a_proposal(run: Run, tmp_path: Path) -> None:
    """A header that claims an accept length of a run without proposals is no exception in diagnose."""
    steps = [{"proposal_ids": [], "num_accepted": 0, "emitted_ids": [3]}]
    path = write_trace(tmp_path / "t", steps, run={"reported": {"accept_length": 1.0}})
    assert run("diagnose", path).code == 0


def test_what_the_engine_counted_is_said_where_it_differs(run: Run, tmp_path: Path) -> None:
    """Of texts that max_tokens cut: one line in stats, the engine's number explained as its own, one row."""
    path = tmp_path / "cut.spectrace"
    steps = [
        {"proposal_ids": [1, 2, 3], "num_accepted": 3, "num_accepted_reported": 3},
        {
            "step": 1,
            "position": 5,
            "proposal_ids": [5, 6, 7],
            "emitted_ids": [5],
            "num_accepted": 1,
            "num_accepted_reported": 3,
            "stop": "length",
        },
    ]
    write_trace(path, steps)
    said = " ".join(run("stats", path).out.split())
    assert (
        "The engine's own count: 6 of 6 accepted (accept length 4.000): 2 more, in steps cut at a text's end."
    ) in said
    counted = " ".join(run("stats", path, "--explain", "4.000").out.split())
    assert "accept length as counted 4.000" in counted
    assert "vLLM's is" not in counted
    plain = " ".join(run("stats", path, "--explain", "3.000").out.split())
    assert "vLLM's is 4.000 here" in plain
    assert run("report", path, "-o", tmp_path / "cut.md").code == 0
    assert "6 of 6 accepted" in (tmp_path / "cut.md").read_text()
