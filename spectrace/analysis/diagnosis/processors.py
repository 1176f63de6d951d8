"""Do logits processors see each committed token once, and is every position under a grammar masked?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.figures import count_of
from spectrace.format.records import Run

_MIN_REFUSALS = 50
_UNAWARE = 0.2
"""Share of the refusals from which the draft's ignorance is worth a word."""


class ProcessorTally:
    """Tokens fed to the processors, and positions without a mask where there should be one."""

    FIELDS = (
        "request",
        "emitted_ids",
        "proposal_ids",
        "processor_tokens",
        "mask",
        "segment",
        "segment_boundary",
        "flags",
        "num_accepted",
        "parents",
        "target_logprobs",
    )

    def __init__(self, run: Run) -> None:
        self.steps = 0
        self.wrong = Witnesses()
        self.fed = self.committed = 0
        self.ones = self.all_verified = 0
        """Of the wrong steps: fed a single token, fed every verified one."""
        self.masked_steps = 0
        self.unmasked = Witnesses()
        self.refusals = self.masked_refusals = 0
        """Refused draft tokens whose log p is known, and those of steps under a mask."""
        self.ruled_out = self.masked_ruled_out = 0
        """Of these, such that the processors left no probability."""
        self.ruled_out_steps = Witnesses()
        self._pending: dict[int, int] = {}
        """Request -> step whose tokens after the segment's end were not masked."""

    def add(self, block: Block) -> None:
        """Counts a block."""
        self._fed(block)
        self._mask(block)
        self._refused(block)

    def _fed(self, block: Block) -> None:
        fed = block.scalar("processor_tokens")
        if fed is None:
            return
        rows = fed.known & block.is_real
        wrong = rows & (fed.values != block.emitted)
        self.steps += int(rows.sum())
        self.fed += int(fed.values[rows].sum())
        self.committed += int(block.emitted[rows].sum())
        self.ones += int((wrong & (fed.values == 1)).sum())
        self.all_verified += int((wrong & (fed.values == block.drafted + 1)).sum())
        self.wrong.note(block, wrong)

    def _refused(self, block: Block) -> None:
        logp = block.tokens("target_logprobs")
        if logp is None:
            return
        refused = block.chain_reached & ~block.token_accepted & logp.known & ~np.isnan(logp.values)
        out = refused & np.isneginf(logp.values)
        masked = _under_mask(block)[block.token_rows]
        self.refusals += int(refused.sum())
        self.ruled_out += int(out.sum())
        self.masked_refusals += int((refused & masked).sum())
        self.masked_ruled_out += int((out & masked).sum())
        self.ruled_out_steps.note_tokens(block, out)

    def _mask(self, block: Block) -> None:
        column = block.columns.get("mask")
        if column is None or not column.words or column.known is not None:
            return
        off = np.isin(column.values, [i for i, word in enumerate(column.words) if word == "off"])
        owner = np.repeat(np.arange(block.num_rows), block.lengths("mask"))
        index = np.arange(len(owner)) - np.searchsorted(owner, owner)
        has_mask = block.has("mask")
        self.masked_steps += int(has_mask.sum())
        self._mask_in_grammar(block, off, owner, index)
        self._mask_after_boundary(block, off, owner, index)

    def _mask_in_grammar(self, block: Block, off: np.ndarray, owner: np.ndarray, index: np.ndarray) -> None:
        """Off within a segment that is a grammar's."""
        found = block.words("segment")
        if found is None:
            return
        in_grammar = np.isin(found[0], [i for i, word in enumerate(found[1]) if word == "grammar"])
        end = block.scalar("segment_boundary")
        last = np.full(block.num_rows, 1 << 30) if end is None else np.where(end.known, end.values, 1 << 30)
        rows = np.zeros(block.num_rows, bool)
        rows[owner[off & in_grammar[owner] & (index <= last[owner])]] = True
        self.unmasked.note(block, rows)

    def _mask_after_boundary(
        self, block: Block, off: np.ndarray, owner: np.ndarray, index: np.ndarray
    ) -> None:
        """Off behind the token that ends a segment, while the request's next step is masked."""
        end = block.scalar("segment_boundary")
        suspects = np.zeros(block.num_rows, bool)
        if end is not None:
            after = off & end.known[owner] & (index > end.values[owner])
            suspects[owner[after]] = True
        begins_on = np.zeros(block.num_rows, bool)
        begins_on[owner[(index == 0) & ~off]] = True
        if not suspects.any() and not self._pending:
            return
        requests = block.requests
        watched = np.isin(requests, [*self._pending, *np.unique(requests[suspects]).tolist()]) & block.has(
            "mask"
        )
        confirmed = []
        for row in np.flatnonzero(watched)[:4096].tolist():  # bounded: steps of a few requests only
            request = int(requests[row])
            before = self._pending.pop(request, None)
            if before is not None and begins_on[row]:
                confirmed.append(before)
            if suspects[row] and len(self._pending) < 1024:
                self._pending[request] = int(block.numbers(row))
        self.unmasked.count += len(confirmed)
        self.unmasked.steps = (self.unmasked.steps + confirmed)[: Witnesses.LIMIT]


def _under_mask(block: Block) -> np.ndarray:
    """[rows] whether a mask was on for the first token of the step."""
    column = block.columns.get("mask")
    first = block.element("mask", np.zeros(block.num_rows, np.int64))
    if column is None or first is None:
        return np.zeros(block.num_rows, bool)
    on = [i for i, word in enumerate(column.words) if word == "on"]
    return first.known & np.isin(first.values, on)


def judge_draft(facts: Facts) -> Iterator[Outcome]:
    """Whether refusals come from what the processors rule out: the draft does not know of them."""
    tally = facts.of(ProcessorTally)
    is_grammar = tally.masked_refusals >= _MIN_REFUSALS
    share = (
        Share(tally.masked_ruled_out, tally.masked_refusals)
        if is_grammar
        else Share(tally.ruled_out, tally.refusals)
    )
    if share.trials < _MIN_REFUSALS:
        return
    if share.low <= _UNAWARE:
        yield Cleared(
            id="processors/draft-unaware",
            summary=f"{share.value:.0%} of the refused tokens were ruled out by the processors",
            evidence={"refused_as_ruled_out": share},
        )
        return
    yield Finding(
        id="processors/draft-unaware",
        # With top-k and top-p alone nothing is wrong: many engines draft without them on purpose.
        strength=Strength.STRONG if is_grammar else Strength.HINT,
        summary=f"{share.value:.0%} of the refused draft tokens are such that the target's processors rule "
        "out: the draft does not know of them. It costs speed only.",
        advice="Apply the same mask and filters to the draft's logits.",
        evidence={"refused_as_ruled_out": share},
        steps=tally.ruled_out_steps.steps,
    )


def judge(facts: Facts) -> Iterator[Outcome]:
    """Tokens fed, then masks, then the draft."""
    yield from _of_steps(facts)
    yield from judge_draft(facts)


def _of_steps(facts: Facts) -> Iterator[Outcome]:
    tally = facts.of(ProcessorTally)
    listed = None if facts.run.sampling is None else facts.run.sampling.processors
    if listed is not None and not listed and not tally.steps and not tally.masked_steps:
        yield Cleared(id="processors", summary="no logits processor runs")
        return
    if not tally.steps:
        yield facts.not_recorded(
            "processors/under-applied",
            "count the tokens that stateful processors are fed",
            "processor_tokens",
        )
    elif tally.wrong:
        how = "one token per step" if tally.ones == tally.wrong.count else "a wrong number of tokens"
        if tally.all_verified == tally.wrong.count:
            how = "every verified token, the rejected ones too"
        yield Finding(
            id="processors/under-applied",
            strength=Strength.CERTAIN,
            summary=f"The logits processors were fed {how}: penalties and grammars see another text.",
            advice="Feed them exactly what was committed, once, after each step.",
            evidence={
                "steps_affected": Share(tally.wrong.count, tally.steps),
                "tokens_fed": tally.fed,
                "tokens_committed": tally.committed,
            },
            steps=tally.wrong.steps,
        )
    else:
        yield Cleared(
            id="processors/under-applied",
            summary=f"fed what was committed in {count_of(tally.steps, 'step')}",
        )
    if not tally.masked_steps:
        yield facts.not_recorded("processors/mask-skipped", "record whether each position was masked", "mask")
    elif tally.unmasked:
        yield Finding(
            id="processors/mask-skipped",
            strength=Strength.CERTAIN,
            summary="Tokens under a grammar were verified without its mask, behind a segment boundary "
            "inside a step.",
            advice="Switch the mask on from the token after the boundary, not from the next step.",
            evidence={"steps_affected": tally.unmasked.count, "steps_with_mask": tally.masked_steps},
            steps=tally.unmasked.steps,
        )
    else:
        yield Cleared(id="processors/mask-skipped", summary="no position under a grammar is without its mask")
