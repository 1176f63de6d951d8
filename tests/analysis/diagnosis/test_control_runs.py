"""What each control rules out, from its counts and from a diagnosis that is given it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from spectrace import Trace
from spectrace.analysis.diagnosis import diagnose
from spectrace.analysis.diagnosis.control_runs import judge_control
from spectrace.analysis.diagnosis.foreseen import Foreseen, foreseen
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked
from spectrace.analysis.intervals import Share
from spectrace.format.counts import Counts
from spectrace.format.records import Run


@pytest.mark.parametrize(
    ("control", "counts", "kind", "id_"),
    [
        ("self-draft", Counts(accepted=100, rejected=0), Cleared, "verification/self-draft"),
        ("self-draft", Counts(accepted=99, rejected=1), Cleared, "verification/self-draft"),  # a tie
        ("self-draft", Counts(accepted=90, rejected=10), Finding, "verification/self-draft"),
        ("self-draft", Counts(accepted=40, rejected=9), NotChecked, "verification/self-draft"),
        ("no-draft", Counts(emitted=9), Cleared, "cost/baseline"),
    ],
)
def test_each_control_says_what_it_shows(control: str, counts: Counts, kind: type, id_: str) -> None:
    """Ruled out, at fault, or open: by the kind that the header names."""
    found = judge_control(Run(control=control, baseline={"token_ns": 2e6}), counts)
    assert found is not None
    assert isinstance(found, kind)
    assert found.id == id_


@pytest.mark.parametrize(
    ("went_on", "accepted", "kind", "words"),
    [
        ((90, 100), (88, 90), Cleared, "went on as foreseen in 90 of 100 steps"),
        ((90, 100), (20, 90), Finding, "there only 22.2% of the first"),
        ((3, 100), (0, 3), NotChecked, "it does not continue the patterns, so nothing is shown"),
        ((30, 32), (30, 30), NotChecked, "too few"),
        ((0, 0), (0, 0), NotChecked, "nothing is shown"),
    ],
)
def test_predictable_text_judges_the_draft_only_where_the_target_repeats(
    went_on: tuple[int, int], accepted: tuple[int, int], kind: type, words: str
) -> None:
    """A target that does something else shows nothing of the draft."""
    pattern = Foreseen(Share(*went_on), Share(*accepted))
    found = judge_control(Run(control="predictable-text"), Counts(), pattern)
    assert found is not None
    assert isinstance(found, kind)
    assert words in (found.reason if isinstance(found, NotChecked) else found.summary)
    assert isinstance(judge_control(Run(control="predictable-text"), Counts()), NotChecked)


def test_what_a_prompt_repeats_is_expected_of_the_target(imported: Callable[..., Trace]) -> None:
    """Steps are held against the pattern at their own place in the text."""
    prompt = [9, 5, 6, 5, 6, 5, 6]
    steps = [
        {"request": "r0", "step": at, "position": position, **rest}
        for at, (position, rest) in enumerate(
            [
                (7, {"proposal_ids": [5], "num_accepted": 1, "emitted_ids": [5, 6]}),
                (9, {"proposal_ids": [7], "num_accepted": 0, "emitted_ids": [5]}),
                (10, {"proposal_ids": [6], "num_accepted": 0, "emitted_ids": [8]}),
            ]
        )
    ]
    requests = [{"record": "request", "request": "r0", "prompt_ids": prompt}]
    found = foreseen(imported({"control": "predictable-text"}, steps, requests))
    assert found == Foreseen(Share(2, 3), Share(1, 2))
    requests[0]["prompt_ids"] = [1, 2]
    assert foreseen(imported({}, steps, requests)) is None


@pytest.mark.parametrize("control", [None, "", "other", "\x1b[2J"])
def test_any_other_trace_is_no_control(control: str | None) -> None:
    """A header without the field, or with a word of its own, is an ordinary run."""
    assert judge_control(Run(control=control), Counts(accepted=9)) is None


def test_a_baseline_that_is_no_number_is_unknown() -> None:
    """A stranger's header may hold anything."""
    for token_ns in ("x", None, True, [1]):
        found = judge_control(Run(control="no-draft", baseline={"token_ns": token_ns}), Counts())
        assert isinstance(found, Cleared)
        assert "time per token unknown" in found.summary


def test_a_control_without_a_draft_gives_its_time_per_token(
    rich: Any, imported: Callable[..., Trace]
) -> None:
    """The rule of cost then answers for a trace that has no baseline of its own."""
    baseline = rich.run.pop("baseline")
    plain = copy.deepcopy(rich)
    plain.run |= {"control": "no-draft", "baseline": baseline}
    plain.steps = [{**step, "proposal_ids": [], "num_accepted": 0} for step in plain.steps]
    plain.steps = [
        {
            key: step[key]
            for key in ("request", "step", "position", "proposal_ids", "num_accepted", "emitted_ids")
        }
        for step in plain.steps
    ]
    trace = imported(rich.run, rich.steps, rich.others)
    assert "cost" in {item.id.partition("/")[0] for item in diagnose(trace).not_checked}
    found = diagnose(trace, control=imported(plain.run, plain.steps, plain.others))
    assert "cost" not in {item.id.partition("/")[0] for item in found.not_checked}
    assert "cost/baseline" in {item.id for item in found.cleared}


def test_a_self_draft_trace_that_refuses_accuses_the_engine(
    rich: Any, imported: Callable[..., Trace]
) -> None:
    """The same in a diagnosis: of the control itself, and of a run that is given it."""
    control = copy.deepcopy(rich)
    control.run["control"] = "self-draft"
    bad = imported(control.run, control.steps, control.others)
    assert diagnose(bad).findings[0].id == "verification/self-draft"
    run = imported(rich.run, rich.steps, rich.others)
    assert "verification/self-draft" in {finding.id for finding in diagnose(run, control=bad).findings}
