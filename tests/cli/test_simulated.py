"""Acceptance that the engine was told: every command counts the same steps, and says whose they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spectrace.testing import step_fields, write_trace
from tests.tui.pages.showing import flat

if TYPE_CHECKING:
    from tests.cli.conftest import Run

SYNTHETIC = {"method": "eagle3", "verification": {"rule": "synthetic", "lossless": False}}


@pytest.fixture(params=[1, 2], ids=["all", "half"])
def simulated(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two requests in which every step, or every second one, was accepted by a given rate."""
    monkeypatch.chdir(tmp_path)
    steps = [
        step_fields(
            request=f"r{n % 2}",
            step=n // 2,
            num_accepted=n % 4,
            position=9 * n,
            flags=["simulated"] if n % request.param == 0 else [],
        )
        for n in range(40)
    ]
    return write_trace(tmp_path / "run.spectrace", steps, run=SYNTHETIC)


def asked(run: Run, *arguments: str | Path) -> dict[str, Any]:
    """What a command says as JSON."""
    found: dict[str, Any] = json.loads(run(*arguments, "--json").out)
    return found


def test_every_command_counts_simulated_steps(run: Run, simulated: Path) -> None:
    """40 proposals of 3 with 0 to 3 accepted: 2.5 by the engine's counters, and by each command."""
    stats = asked(run, "stats", simulated, "--explain", "2.500", "--by", "request")
    assert stats["counts"]["proposals"] == 40
    assert stats["metrics"]["accept_length"] == 2.5
    assert sum(group["proposals"] for group in stats["by_request"].values()) == 40
    by_name = {match["name"]: match["value"] for match in stats["explain"]["matches"]}
    assert by_name["accept_length"] == by_name["accept_length_mean_of_requests"] == 2.5
    measured = asked(run, "diagnose", simulated)["measured"]
    assert (measured["proposals"], measured["accept_length"]) == (40, 2.5)
    assert measured["alpha1"]["successes"] == 30
    assert run("report", simulated, "-o", "r.md").code == 0
    report = Path("r.md").read_text(encoding="utf-8")
    assert re.search(r"Accept length 2\.50 .*, alpha1 0\.750 \(.*\), 30 of 40, over 40 proposals", report)
    assert "| longest context | 351 tokens |" in report


def test_every_command_says_that_they_are_simulated(run: Run, simulated: Path) -> None:
    """Who reads a good number knows whose it is; no test of the draft is proposed."""
    assert run("report", simulated, "-o", "r.md").code == 0
    told = [
        run("stats", simulated).out,
        run("stats", simulated, "--explain", "2.5").out,
        run("stats", simulated, "--by", "request").out,
        run("diagnose", simulated).out,
        Path("r.md").read_text(encoding="utf-8"),
        flat("overview", simulated),
    ]
    for text in told:
        words = " ".join(text.split())
        assert "Acceptance is simulated: the engine accepted at rates that it was given." in words
        assert "--control self-draft" not in words


def test_diff_says_that_they_are_left_out(run: Run, simulated: Path) -> None:
    """What the engine was told compares no drafts; who reads the change of acceptance knows how many lack."""
    acceptance = asked(run, "diff", simulated, simulated)["acceptance"]
    (left,) = set(acceptance["simulated"])
    assert left in (20, 40)
    assert acceptance["proposals"] == [40 - left] * 2
    told = (
        "Acceptance is simulated: the engine accepted at rates that it was given. "
        f"Left out: {left} proposals of A and {left} proposals of B."
    )
    assert told in " ".join(run("diff", simulated, simulated).out.split())


def test_causes_are_sought_in_steps_that_the_models_decided(run: Run, simulated: Path) -> None:
    """What was told says nothing of the draft, and it is said how little is left."""
    (small,) = (f for f in asked(run, "diagnose", simulated)["findings"] if f["id"] == "workload/too-small")
    assert small["evidence"]["proposals"] in (0, 20)
    assert re.search(r"the models decided about (0|20) of 40 proposals of 2 prompts", small["summary"])


def test_a_run_that_is_not_simulated_says_nothing_of_it(run: Run, trace: Path) -> None:
    """The note is for those runs alone."""
    for command in (["stats"], ["diagnose"], ["diff", "run.spectrace"]):
        assert "simulated" not in run(*command, "run.spectrace").out
