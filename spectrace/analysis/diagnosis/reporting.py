"""Are the log-probabilities that the engine hands out those it computed?

The trace has no field of its own for them: a recorder may add ``reported_logprobs`` to a step, one number
for each committed token, and they are compared with the recorded log p of the accepted draft tokens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.records import Run

KEY = "reported_logprobs"
_FAR = 0.02
_OFTEN = 0.01


class ReportTally:
    """Reported beside recorded log-probabilities."""

    FIELDS = ("extra", "target_logprobs", "proposal_ids", "num_accepted", "emitted_ids", "flags", "parents")

    FIRST_STEPS = 20_000
    """Extra keys are JSON text."""

    def __init__(self, run: Run) -> None:
        self.compared = self.far = self.zeros = 0
        self.steps = Witnesses()

    def add(self, block: Block) -> None:
        """Counts a block."""
        column = block.columns.get("extra")
        recorded = block.tokens("target_logprobs")
        if column is None or recorded is None or not any(KEY in word for word in column.words):
            return
        found = block.words("extra")
        if found is None:
            return
        wrong = block.is_real & False
        for row in (block.is_real & ~block.is_tree & (found[0] >= 0)).nonzero()[0].tolist():
            reported = _reported(found[1][int(found[0][row])])
            start = int(block.starts[row])
            for at in range(min(int(block.accepted[row]), len(reported))):
                if recorded.known[start + at] and math.isfinite(reported[at]):
                    own = float(recorded.values[start + at])
                    self.compared += 1
                    is_far = abs(reported[at] - own) > _FAR
                    self.far += is_far
                    self.zeros += is_far and reported[at] == 0.0
                    wrong[row] |= is_far
        self.steps.note(block, wrong)


def _reported(text: str) -> list[float]:
    try:
        given = json.loads(text).get(KEY)
    except (ValueError, AttributeError, RecursionError):
        return []
    if not isinstance(given, list):
        return []
    return [float(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else math.nan for v in given]


def judge(facts: Facts) -> Iterator[Outcome]:
    """More than one token in a hundred off, or a zero that is none."""
    tally = facts.of(ReportTally)
    if not tally.compared:
        yield facts.not_recorded(
            "reporting/logprob", "add what the engine handed out to each step", KEY, "target_logprobs"
        )
    elif tally.far > _OFTEN * tally.compared or tally.zeros:
        yield Finding(
            id="reporting/logprob",
            strength=Strength.CERTAIN,
            summary="Reported log-probabilities are not those of the committed tokens.",
            advice="Take them after the processors and at the token's own position, for accepted tokens too.",
            evidence={"tokens_off": Share(tally.far, tally.compared), "reported_as_zero": tally.zeros},
            steps=tally.steps.steps,
        )
    else:
        yield Cleared(id="reporting/logprob", summary=f"{tally.compared:,} reported log-probabilities agree")
