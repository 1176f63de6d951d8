"""What the draft's vocabulary covers: counted by hand, additive, bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import spectrace
from spectrace.analysis.coverage import CoverageTally, Missed
from spectrace.analysis.diagnosis.facts import collect
from spectrace.testing import write_trace

RUN = {"method": "eagle3", "vocab_map": {"d2t": [0, 0, 1, 4], "t2d": [0, 1, 3, 7]}}


def _tally(path: Path, emitted: list[list[int]], **fields: Any) -> CoverageTally:
    steps = [
        {"step": at, "proposal_ids": [0], "num_accepted": 0, "emitted_ids": ids, **fields}
        for at, ids in enumerate(emitted)
    ]
    with spectrace.open(write_trace(path / "t.spectrace", steps, run=RUN)) as trace:
        return collect(trace, [CoverageTally]).of(CoverageTally)


def test_shares_are_hand_counted(tmp_path: Path) -> None:
    """Of 0 5 | 5 | 3 7 | 9 three of six tokens and two of four first ones can be said."""
    tally = _tally(tmp_path, [[0, 5], [5], [3, 7], [9]])
    assert (tally.coverage.successes, tally.coverage.trials) == (3, 6)
    assert (tally.ceiling.successes, tally.ceiling.trials) == (2, 4)
    assert tally.most_missed(9) == (
        Missed(token_id=5, count=2, first_row=0),
        Missed(token_id=9, count=1, first_row=3),
    )
    assert tally.most_missed(1)[0].token_id == 5
    assert tally.num_missed == 2


def test_steps_that_were_not_verified_do_not_count(tmp_path: Path) -> None:
    """A replayed or dummy step says nothing of the draft."""
    assert _tally(tmp_path, [[5], [9]], flags=["dummy"]).coverage.trials == 0


def test_an_unknown_vocabulary_covers_nothing_and_misses_nothing(tmp_path: Path) -> None:
    """Without t2d and without a table there is no share."""
    with spectrace.open(write_trace(tmp_path / "t.spectrace", [{}], run={"method": "eagle3"})) as trace:
        tally = collect(trace, [CoverageTally]).of(CoverageTally)
    assert tally.coverage.value is None
    assert not tally.most_missed(5)
