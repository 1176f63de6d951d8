"""What the first steps of a finding show of it, and what should be there instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.analysis.diagnosis.verdict import Finding, Strength
from spectrace.analysis.diagnosis.witness import AT_FIRST, USUALLY, with_witnesses
from spectrace.testing import make_step


def finding(id_: str, **evidence: Any) -> Finding:
    """A finding about steps 0 and 7."""
    return Finding(id=id_, strength=Strength.CERTAIN, summary="", advice="", evidence=evidence, steps=[0, 7])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("eagle3-draft-kv-kept", "draft kv length 21, should be 18"),
        ("eagle3-positions-shifted", "draft positions 12 14 15 16, should be 12 13 14 15"),
    ],
)
def test_a_faulty_sample_shows_its_fault_in_a_step_with_a_proposal(
    name: str, words: str, sample_traces: Path
) -> None:
    """The value of the step is the recorded one, and the right one stands beside it."""
    with spectrace.open(sample_traces / f"{name}.spectrace") as trace:
        first = spectrace.diagnose(trace).findings[0].witnesses[0]
        step = trace.steps[first.step]
    assert first.words == words
    assert step.proposal_ids
    value = getattr(step, first.field)
    assert (list(value) if isinstance(value, tuple) else value) == first.value


@pytest.mark.parametrize(
    ("evidence", "fields", "should_be"),
    [
        ({AT_FIRST: -1}, {"position": 20, "draft_kv_length": 25}, 19),
        ({USUALLY: 0}, {"position": 20, "target_kv_length": 19}, 20),
        ({"shift": 1}, {"draft_positions": [5, 6]}, [4, 5]),
        ({"tokens_off": 1}, {"draft_positions": [5, 7]}, [5, 6]),
        (
            {"shift": 9, "steps_off": 1, "first_position_less_committed": {-2: 8, 7: 1}},
            {"position": 20, "draft_positions": [27, 28]},
            [18, 19],
        ),
    ],
)
def test_what_should_be_there_follows_from_the_evidence(
    evidence: dict[str, Any], fields: dict[str, Any], should_be: object
) -> None:
    """A cache keeps its distance from the text; positions go up by one from where the others begin."""
    step = make_step(**fields)
    found = with_witnesses(finding("positions/shifted", **evidence), lambda number: step).witnesses
    assert [witness.step for witness in found] == [0, 7]
    assert found[0].should_be == should_be


@pytest.mark.parametrize(
    ("evidence", "fields"),
    [
        ({}, {"draft_kv_length": 25}),
        ({AT_FIRST: "x"}, {"position": 20, "draft_kv_length": 25}),
        ({AT_FIRST: -1}, {"position": 20, "draft_kv_length": 19}),
        ({"shift": True}, {"draft_positions": [5, 6]}),
        ({"shift": 1}, {"draft_positions": [5, None]}),
        ({"shift": 1}, {"draft_positions": []}),
        ({"steps_off": 1}, {"draft_positions": [5, 6]}),
        ({"steps_off": 1, "first_position_less_committed": {"x" * 40: 1}}, {"draft_positions": [5, 6]}),
    ],
)
def test_nothing_is_made_up(evidence: dict[str, Any], fields: dict[str, Any]) -> None:
    """Where evidence or value is missing, of another kind, or right, no value is called wrong."""
    step = make_step(**fields)
    assert with_witnesses(finding("positions/shifted", **evidence), lambda number: step).witnesses == ()
    assert with_witnesses(finding("positions/shifted", shift=1), lambda number: None).witnesses == ()
