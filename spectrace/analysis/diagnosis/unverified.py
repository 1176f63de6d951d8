"""Is the first draft token accepted without asking the target?

Some loops keep no distribution for the place of the first token and take it as it comes. A recorder then has
the target's values everywhere but there, and that first token is never refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.records import Run

_MIN_STEPS = 20
"""So many first tokens taken without a value and none refused: no gap in the recording."""
ID = "verification/unverified-first"


class UnverifiedTally:
    """First tokens without pick and probability of the target, in steps that have the later ones."""

    FIELDS = (
        "proposal_ids", "num_accepted", "target_ids", "target_logprobs", "flags", "emitted_ids", "parents",
    )  # fmt: skip

    def __init__(self, run: Run) -> None:
        self.asked = 0
        """Steps with both values of the first token."""
        self.taken = Witnesses()
        self.refused = 0

    def add(self, block: Block) -> None:
        """Counts a block."""
        picks, logprobs = block.slots("target_ids"), block.tokens("target_logprobs")
        if picks is None or logprobs is None:
            return
        rows = np.flatnonzero(block.is_real & ~block.is_tree & (block.drafted > 1))
        root, first = block.root_slots[rows], block.starts[rows]
        has_first = picks.known[root] | logprobs.known[first]
        has_second = picks.known[root + 1] & logprobs.known[first + 1]
        self.asked += int((picks.known[root] & logprobs.known[first]).sum())
        blind = rows[~has_first & has_second]
        taken = np.zeros(block.num_rows, bool)
        taken[blind[block.accepted[blind] > 0]] = True
        self.taken.note(block, taken)
        self.refused += int((block.accepted[blind] == 0).sum())


def judge(facts: Facts) -> Iterator[Outcome]:
    """First tokens nobody asked the target about."""
    tally = facts.of(UnverifiedTally)
    declared = facts.run.verification
    blind = tally.taken.count + tally.refused
    if declared is not None and declared.lossless is False:
        return  # what a lossy rule accepts is its own affair
    if blind and (tally.refused or tally.taken.count < _MIN_STEPS):
        yield NotChecked(
            id=ID,
            reason=f"{blind:,} first tokens lack the target's values; some were refused, or they are too few",
            how="record target_ids and target_logprobs at every place",
        )
    elif blind:
        yield Finding(
            id="verification/unjustified-accept",
            strength=Strength.CERTAIN,
            summary="The first draft token is accepted without a distribution of the target at its place: "
            "nothing verifies it.",
            advice="Keep the target's logits of the last committed token, and compare the first draft token "
            "with them.",
            evidence={
                "accepted_without_target": Share(tally.taken.count, blind),
                "steps_with_target": tally.asked,
            },
            steps=tally.taken.steps,
        )
    elif tally.asked:
        yield Cleared(id=ID, summary="the target has a distribution for every first token")
    elif not (facts.has("target_ids") and facts.has("target_logprobs")):
        how = "record the target's pick and log p at each place"
        yield facts.not_recorded(ID, how, "target_ids", "target_logprobs")
