"""Recurrent state: does a step that proposed nothing see what was accepted before it?

A recurrent layer keeps one slot instead of a cache that can be cropped. When the step behind an acceptance
proposes nothing, some engines read the slot of before; a replay of that step then picks another token.
Acceptance looks normal all the while.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import PerRequest, Witnesses
from spectrace.analysis.diagnosis.ties import tie_limit
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.columns import Array
from spectrace.format.records import Run

_NOWHERE = -1
_MAX_REPLAYS = 1024
"""Replayed steps looked at in one block; a run has a handful."""


class ReplayTally:
    """Picks of steps without a proposal behind an acceptance, and of their replays."""

    FIELDS = (
        "request", "position", "proposal_ids", "num_accepted", "target_ids", "target_gaps", "flags",
        "emitted_ids", "parents",
    )  # fmt: skip

    def __init__(self, run: Run) -> None:
        self.limit = tie_limit(run)
        self.watched = 0
        """Steps without a proposal, each behind one that accepted a token."""
        self.replayed = 0
        """Of these, those whose replay was recorded too."""
        self.differ = Witnesses()
        self._last_accepted = PerRequest()
        self._position = PerRequest(fill=_NOWHERE)
        self._pick = PerRequest()

    def add(self, block: Block) -> None:
        """Counts a block."""
        size = int(block.requests.max(initial=-1)) + 1
        last = self._last_accepted.upto(size)
        is_replay = block.flagged("replay")
        quiet = (block.drafted == 0) & ~is_replay & ~block.is_prefill
        picks, clear = self._picks(block)
        if picks is not None and (quiet.any() or is_replay.any()):
            rows = np.flatnonzero(quiet & clear & (self._accepted_before(block, last) > 0))
            self.watched += len(rows)
            positions, kept = self._position.upto(size), self._pick.upto(size)
            self._compare(block, np.flatnonzero(is_replay & clear)[:_MAX_REPLAYS], rows, picks)
            positions[block.requests[rows]], kept[block.requests[rows]] = block.positions[rows], picks[rows]
        own = ~is_replay
        last[block.requests[own]] = block.accepted[own]  # of several steps of a request, numpy keeps the last

    def _picks(self, block: Block) -> tuple[Array | None, Array]:
        """[rows] the target's pick at the root, and whether it is known and no tie."""
        ids, gaps = block.slots("target_ids"), block.slots("target_gaps")
        if ids is None or gaps is None:
            return None, np.zeros(block.num_rows, bool)
        root = block.root_slots
        return ids.values[root], ids.known[root] & gaps.known[root] & (gaps.values[root] > self.limit)

    def _accepted_before(self, block: Block, last: Array) -> Array:
        """[rows] what the step before of the same request accepted."""
        order = np.argsort(block.requests, kind="stable")
        requests = block.requests[order]
        before = np.concatenate([[0], block.accepted[order][:-1]])
        is_first = np.concatenate([[True], requests[1:] != requests[:-1]])
        before[is_first] = last[requests[is_first]]
        found = np.zeros(block.num_rows, np.int64)
        found[order] = before
        return found

    def _compare(self, block: Block, replays: Array, quiet: Array, picks: Array) -> None:
        for row in replays.tolist():
            request, position = block.requests[row], block.positions[row]
            same = quiet[(block.requests[quiet] == request) & (block.positions[quiet] == position)]
            if len(same):
                pick = picks[same[-1]]
            elif self._position.upto(0)[request] == position:
                pick = self._pick.upto(0)[request]
            else:
                continue
            self.replayed += 1
            if pick != picks[row]:
                self.differ.note(block, np.arange(block.num_rows) == row)


def judge(facts: Facts) -> Iterator[Outcome]:
    """Whether a replay picks what the step itself picked."""
    tally = facts.of(ReplayTally)
    if not tally.watched:
        return
    id_ = "kv-state/recurrent-slot"
    if not tally.replayed:
        yield NotChecked(
            id=id_,
            reason="no step was replayed",
            how="record a step without a proposal once more from its whole text, with the flag replay",
        )
    elif tally.differ:
        yield Finding(
            id=id_,
            strength=Strength.CERTAIN,
            summary="A step without a proposal picks another token than its replay does: the target's "
            "recurrent state is not the one behind the accepted tokens.",
            advice="Select the recurrent slot by the number accepted, also in a step that proposes nothing.",
            evidence={
                "replays_that_differ": Share(tally.differ.count, tally.replayed),
                "steps_without_proposal": tally.watched,
            },
            steps=tally.differ.steps,
        )
    else:
        yield Cleared(id=id_, summary="replayed steps pick the same token")
