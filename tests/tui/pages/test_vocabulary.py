"""The page of the vocabulary tells the two readings of a map apart and lists what the draft cannot say."""

from __future__ import annotations

import re
from pathlib import Path

from spectrace.testing import write_trace
from tests.tui.pages.showing import flat, lines_of

RUN = {
    "method": "eagle3",
    "target": {"vocab_size": 10},
    "draft": {"head_rows": 4},
    "vocab_map": {"d2t": [0, 0, 1, 4], "t2d": [0, 1, 3, 7], "source": "checkpoint", "applied": "offset"},
}


def test_a_healthy_map_is_cleared(sample_traces: Path) -> None:
    """Offset reading: every id once and exactly t2d; direct reading: neither."""
    text = flat("vocabulary", sample_traces / "eagle3.spectrace")
    assert "cleared vocab-map: offset reading gives 560 distinct ids of 560, exactly t2d" in text
    assert "distinct 560 of 560 260 of 560" in text
    assert "exactly t2d yes no" in text
    assert "id 100 338 238" in text
    assert re.search(r"recorded ids follow it (\d+) of \1 0 of \1", text)
    assert "Zeros at the beginning of d2t are normal" in text


def test_a_map_read_directly_is_convicted(sample_traces: Path) -> None:
    """The ids of the steps follow the wrong reading, and the right one would have been accepted."""
    text = flat("vocabulary", sample_traces / "eagle3-map-as-direct.spectrace")
    assert "certain vocab-map/offset-read-as-direct" in text
    assert re.search(r"recorded ids follow it 0 of (\d+) \1 of \1", text)
    assert re.search(r"alpha1 would have been 8\d\.\d % 0\.0 %", text)


def test_missed_tokens_lead_to_their_first_step(tmp_path: Path) -> None:
    """Tokens outside t2d are counted, most missed first, each with the step that first has it."""
    emitted = [[0, 5], [5], [3, 7], [9]]
    steps = [
        {"step": at, "proposal_ids": [0], "num_accepted": len(ids) - 1, "emitted_ids": ids}
        for at, ids in enumerate(emitted)
    ]
    path = write_trace(tmp_path / "t.spectrace", steps, run=RUN)
    text = flat("vocabulary", path)
    assert "vocabulary 4 ids of the target's 10 (40.0 %)" in text
    assert "coverage 50.0 % of 6 committed tokens can be expressed" in text
    assert "alpha1 of a greedy run is at most 50.0 %: first tokens of 4 steps" in text
    assert "token times first step 5 2 0 9 1 3" in text
    rows = [line.row for line in lines_of("vocabulary", path) if line.row is not None]
    assert rows[-2:] == [0, 3]


def test_one_vocabulary_needs_no_map(sample_traces: Path) -> None:
    """A draft model with the target's tokenizer can say everything."""
    text = flat("vocabulary", sample_traces / "draft-greedy.spectrace")
    assert "Draft and target share one vocabulary" in text


def test_a_missing_map_says_what_brings_it(sample_traces: Path) -> None:
    """Nothing is guessed of a map that is not recorded."""
    text = flat("vocabulary", sample_traces / "minimal-v1.spectrace")
    assert "vocab_map is not recorded: the recorder writes d2t and t2d" in text
