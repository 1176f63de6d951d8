"""The page of a step shows everything recorded, and where the target's choice stood with the draft."""

from __future__ import annotations

import re
from pathlib import Path

from spectrace.testing import write_trace
from tests.tui.pages.showing import flat, lines_of, shown
from tests.tui.traces import make_trace


def test_a_wrong_map_is_seen_in_one_step(sample_traces: Path) -> None:
    """Where the draft proposed the target's choice and the map spoilt it, the page says so."""
    text = flat("step", sample_traces / "eagle3-map-as-direct.spectrace", 1)
    assert (
        'The target\'s choice, 293 " was", is what the draft proposed, but its id went to the target as 220'
        in text
    )
    assert "look at the map" in text


def test_a_rejected_place_says_where_the_choice_stood(sample_traces: Path) -> None:
    """Its rank among the draft's alternatives is a word."""
    text = flat("step", sample_traces / "eagle3-taps-shifted.spectrace", 1)
    assert "The target's choice, 695 \" box\", was fourth among the draft's best 5, log q -2.547." in text


def test_a_token_that_the_draft_cannot_say(tmp_path: Path) -> None:
    """A choice outside t2d is said to be outside the draft's vocabulary."""
    run = {"method": "eagle3", "target": {"vocab_size": 64}, "vocab_map": {"d2t": [0, 1], "t2d": [0, 2]}}
    step = {"proposal_ids": [2, 0], "target_ids": [40, 0, 0], "emitted_ids": [40], "draft_ids": [1, 0]}
    path = write_trace(tmp_path / "t.spectrace", [step], run=run)
    assert "The target's choice, 40, is outside the draft's vocabulary" in flat("step", path)


def test_alternatives_of_both_sides(tmp_path: Path) -> None:
    """Both lists stand below each other, for each place that was reached and for no other."""
    text = shown("step", make_trace(tmp_path / "t.spectrace", 4), 1)
    assert '0: draft, raw   0 " the" -0.500  1 " quick" -1.000' in text
    assert "0: target       103" in text
    assert "1: draft" in text
    assert "2: draft" not in text, "the third token was not reached"
    assert "not reached" in text


def test_the_text_before_the_step(tmp_path: Path) -> None:
    """The last sixteen tokens are the prompt's and those committed, in reading order."""
    path = write_trace(
        tmp_path / "t.spectrace",
        [{"step": 0, "emitted_ids": [51, 52]}, {"step": 0, "request": "b"}, {"step": 1}],
        requests=[{"request": "r0", "prompt_ids": list(range(20))}, {"request": "b", "prompt_ids": [99]}],
    )
    expected = " ".join(map(str, [*range(6, 20), 51, 52]))
    assert f"tokens before {expected} The target" in flat("step", path, 2, 120)


def test_missing_fields_are_named_with_their_reason(tmp_path: Path) -> None:
    """A field that is not there has the recorder's reason, or says what brings it."""
    run = {"capture": {"unavailable": {"draft_logprobs": "the graph hides them"}}}
    text = flat("step", write_trace(tmp_path / "t.spectrace", [{}], run=run))
    assert "not recorded: draft_logprobs; the graph hides them" in text
    assert "not recorded: draft_ids, draft_top" in text
    assert "TransformersRecorder(top=5)" in text


def test_every_token_is_a_place_to_go(tmp_path: Path) -> None:
    """The lines of the table lead to their tokens."""
    lines = lines_of("step", make_trace(tmp_path / "t.spectrace", 4), 3)
    assert [line.position for line in lines if line.row is not None][:4] == [0, 1, 2, 3]


def test_an_engine_that_counts_otherwise_is_seen(tmp_path: Path) -> None:
    """A reported count that is not that of the ids stands on the page."""
    path = write_trace(tmp_path / "t.spectrace", [{"num_accepted": 1, "num_accepted_reported": 3}])
    assert "engine said 3 accepted, the ids say 1" in flat("step", path)


def test_what_sampling_had_cut_is_no_alternative(sample_traces: Path) -> None:
    """Neither a rank nor a list of tokens that could not be drawn."""
    text = flat("step", sample_traces / "draft-sampled.spectrace", row=3, width=120)
    assert re.search(r'-inf cut [0-9]+ " ?[^"]+" inf rejected', text)
    assert '1: target 1012 " still" 0.000 others cut' in text
