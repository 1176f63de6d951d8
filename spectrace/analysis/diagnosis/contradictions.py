"""Does the trace agree with itself? Counts out of range, emitted tokens that nobody proposed.

These are faults of the recorder or of the file; every rule reads them as the nearest sound value.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.format.records import Run


class ContradictionTally:
    """Rows whose required fields cannot all be true."""

    FIELDS = ("num_accepted", "proposal_ids", "emitted_ids", "stop", "flags", "parents")

    def __init__(self, run: Run) -> None:
        self.out_of_range = Witnesses()
        self.too_many = Witnesses()
        """More tokens emitted than accepted and one."""
        self.foreign = Witnesses()
        """The first accepted token was not proposed at all."""

    def add(self, block: Block) -> None:
        """Counts a block."""
        accepted = block.raw_accepted
        self.out_of_range.note(block, (accepted < 0) | (accepted > block.drafted))
        self.too_many.note(block, (block.emitted > block.accepted + 1) & block.is_real)
        self._foreign(block)

    def _foreign(self, block: Block) -> None:
        first = block.element("emitted_ids", np.zeros(block.num_rows, np.int64))
        ids = block.tokens("proposal_ids")
        if first is None or ids is None:
            return
        hits = np.zeros(block.num_rows, bool)
        hits[block.token_rows[ids.values == first.values[block.token_rows]]] = True
        self.foreign.note(block, block.is_real & (block.accepted > 0) & first.known & ~hits)


def judge(facts: Facts) -> Iterator[Outcome]:
    """One finding about the trace, whatever is wrong in it."""
    tally = facts.of(ContradictionTally)
    kinds = {
        "num_accepted_out_of_range": tally.out_of_range,
        "emitted_more_than_accepted_and_one": tally.too_many,
        "accepted_but_not_proposed": tally.foreign,
    }
    wrong = {name: witnesses for name, witnesses in kinds.items() if witnesses}
    if not wrong:
        if facts.num_steps:
            yield Cleared(id="trace/contradiction", summary="counts and ids agree")
        return
    steps = sorted({step for witnesses in wrong.values() for step in witnesses.steps})
    yield Finding(
        id="trace/contradiction",
        strength=Strength.CERTAIN,
        summary="The trace contradicts itself: accepted counts, proposals and emitted tokens do not agree.",
        advice="Mend the recorder first; spectrace steps shows the rows.",
        evidence={name: witnesses.count for name, witnesses in wrong.items()},
        steps=steps[: Witnesses.LIMIT],
    )
