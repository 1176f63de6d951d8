"""Does the engine's own count of accepted tokens agree with what it committed?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.records import Run


class ReportedTally:
    """num_accepted as the engine said it beside what was committed, where a step was not cut."""

    FIELDS = ("num_accepted", "num_accepted_reported", "emitted_ids", "stop", "proposal_ids", "flags")

    def __init__(self, run: Run) -> None:
        self.compared = 0
        self.difference = 0
        self.wrong = Witnesses()

    def add(self, block: Block) -> None:
        """Counts a block."""
        said = block.scalar("num_accepted_reported")
        if said is None:
            return
        stopped = block.words("stop")
        # At the end of a text an engine may have accepted more than it committed.
        whole = block.is_real & said.known & (block.emitted == block.accepted + 1)
        if stopped is not None:
            whole &= stopped[0] < 0
        difference = np.where(whole, said.values - block.accepted, 0)
        self.compared += int(whole.sum())
        self.difference += int(difference.sum())
        self.wrong.note(block, difference != 0)


def judge(facts: Facts) -> Iterator[Outcome]:
    """Counts that differ in any step that was not cut short."""
    tally = facts.of(ReportedTally)
    if not tally.compared:
        yield facts.not_recorded(
            "metrics/miscount",
            "record the count of accepted tokens that the engine keeps",
            "num_accepted_reported",
        )
    elif tally.wrong:
        share = Share(tally.wrong.count, tally.compared)
        mean = tally.difference / tally.wrong.count
        own = " It counts the target's own token." if mean == 1 and share.successes == share.trials else ""
        yield Finding(
            id="metrics/formula",
            strength=Strength.CERTAIN,
            summary=f"The engine counts {mean:+.2f} accepted tokens a step against what it commits.{own}",
            advice="Count the draft tokens among those committed; the target's own token is none.",
            evidence={"steps_miscounted": share, "mean_difference": mean},
            steps=tally.wrong.steps,
        )
    else:
        yield Cleared(id="metrics/miscount", summary=f"the engine's count agrees in {tally.compared:,} steps")
