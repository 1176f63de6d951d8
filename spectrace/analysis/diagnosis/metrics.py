"""Is the number what it is called: bonus counted or not, pooled or averaged, tokens after the end?

Every formula is computed from the same steps; the number that the engine printed is matched to one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import MIN_STEPS, PerRequest, Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.formulas import (
    FORMULAS,
    Given,
    RequestSums,
    Sums,
    explain,
    nominal_tokens,
)
from spectrace.analysis.intervals import Share
from spectrace.format.counts import Counts, count_steps
from spectrace.format.records import Run

_AFTER_EOS = 0.05
"""Share of the accept length that tokens after the end must make up before it is a finding."""
_SPREAD = 0.1
"""Difference between two per-position rates that misleads."""


class CountTally:
    """What the engine counted beside what was committed, over every step, as ``trace.counts`` counts them."""

    FIELDS = (
        "request",
        "num_accepted",
        "num_accepted_reported",
        "emitted_ids",
        "stop",
        "proposal_ids",
        "parents",
        "accepted_nodes",
        "flags",
    )

    def __init__(self, run: Run) -> None:
        self.counts = Counts()
        self.counted = 0
        """Tokens by the engine's count, the target's own included."""
        self.committed = 0
        self.after_end = 0
        self.steps = Witnesses()
        self._requests = [PerRequest() for _ in range(4)]

    @property
    def requests(self) -> RequestSums:
        """Sums of the requests that have a proposal."""
        used = self._requests[0].values > 0
        return RequestSums(*(tally.values[used] for tally in self._requests))

    @property
    def alpha1(self) -> Share:
        """Proposals whose first token was accepted."""
        return Share(sum(self.counts.accepted_at[:1]), self.counts.proposals)

    def add(self, block: Block) -> None:
        """Counts a block."""
        self.counts.add(count_steps(block.columns, block.num_rows))
        proposed = block.is_proposal
        each = proposed, block.drafted, block.accepted, block.emitted * proposed
        for tally, values in zip(self._requests, each):
            tally.add(block, values)
        said = block.scalar("num_accepted_reported")
        accepted = block.raw_accepted
        counted = np.where(said.known, said.values, accepted) if said is not None else accepted
        counted = np.clip(np.maximum(counted, accepted), 0, block.drafted) + 1
        stop = block.words("stop")
        ended = np.zeros(block.num_rows, bool)
        if stop is not None:
            ended = np.isin(stop[0], [i for i, word in enumerate(stop[1]) if word in ("eos", "stop_string")])
        beyond = np.where(ended & proposed, np.maximum(counted - block.emitted, 0), 0)
        self.counted += int(counted[proposed].sum())
        self.committed += int((counted - beyond)[proposed].sum())
        self.after_end += int(beyond.sum())
        # One token beyond is the target's own, which every formula grants; more were counted after the end.
        self.steps.note(block, beyond > 1)


def sums(facts: Facts) -> Sums:
    """What the formulas are made of."""
    tally = facts.of(CountTally)
    return Sums(
        counts=tally.counts,
        nominal=nominal_tokens(facts.run),
        counted=tally.counted,
        requests=tally.requests,
    )


def judge(facts: Facts) -> Iterator[Outcome]:
    """Tokens after the end, the reported numbers, proposals of different length."""
    yield from _after_eos(facts)
    yield from _reported(facts)
    yield from _variable_length(facts)


def _after_eos(facts: Facts) -> Iterator[Outcome]:
    tally = facts.of(CountTally)
    steps = tally.counts.proposals
    if not steps:
        return
    unknown = [*facts.unavailable("metrics/after-eos", "emitted_ids")]
    if unknown and not facts.has("stop"):
        yield from unknown
        return
    counted, committed = tally.counted / steps, tally.committed / steps
    evidence = {
        "accept_length_as_counted": counted,
        "accept_length": committed,
        "tokens_after_end": tally.after_end,
        "proposals": steps,
    }
    if tally.steps and counted - committed > _AFTER_EOS * committed:
        yield Finding(
            id="metrics/after-eos",
            strength=Strength.CERTAIN,
            summary=f"The engine counts {tally.after_end:,} tokens after the end of the text: "
            f"accept length {counted:.2f}, of what was committed {committed:.2f}.",
            advice="Count what was committed; the difference grows as answers get shorter.",
            evidence=evidence,
            steps=tally.steps.steps,
        )
    else:
        yield Cleared(id="metrics/after-eos", summary="nothing counted after the end", evidence=evidence)


def _reported(facts: Facts) -> Iterator[Outcome]:
    reported = {k: v for k, v in (facts.run.reported or {}).items() if _is_number(v)}
    asked = {
        k: v
        for k, v in reported.items()
        if k in ("accept_length", "acceptance_rate", "mean_acceptance_length")
    }
    if not asked:
        yield facts.not_recorded(
            "metrics/formula",
            "put the number that the engine printed into the header",
            "reported.accept_length",
        )
    if not facts.of(CountTally).counts.proposals:
        return
    for name, value in asked.items():
        yield _matched(name, float(value), sums(facts))


_USUAL = ("accept_length", "emitted_per_proposal")
"""What a reported accept length may be without a word."""


def _matched(name: str, value: float, known: Sums) -> Outcome:
    is_rate = name == "acceptance_rate"
    found = [match for match in explain(_given(value), known).matches if match.formula in FORMULAS]
    evidence = {"reported": value, **{formula.name: formula.value(known) for formula in FORMULAS}}
    usual = ("acceptance_rate",) if is_rate else _USUAL
    for match in found:
        if match.formula.name in usual:
            per_cent = "per cent of " if match.is_per_cent else ""
            return Cleared(
                id="metrics/formula",
                summary=f"the reported {value:g} is {per_cent}{match.formula.formula}",
                evidence=evidence,
            )
    if found:
        return Finding(
            id="metrics/formula",
            strength=Strength.CERTAIN,
            summary=f"The reported {name} {value:g} is another formula over the same steps: "
            f"{found[0].formula.formula}.",
            advice="Compare only equal formulas; 1 + accepted / proposals is "
            f"{evidence['accept_length']:.3f} here. spectrace stats --explain lists them.",
            evidence=evidence,
        )
    return NotChecked(
        id="metrics/formula",
        reason=f"no formula over these steps gives the reported {value:g}; it may cover other steps (a "
        "server's "
        "average since start)",
    )


def _given(reported: float) -> Given:
    """A reported number with the digits it shows, at least two: a float has lost its zeros."""
    return Given(reported, max(len(f"{reported:.10g}".partition(".")[2]), 2))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e9


def _variable_length(facts: Facts) -> Iterator[Outcome]:
    sample = facts.sample
    if sample.proposals < MIN_STEPS or np.count_nonzero(sample.lengths) < 2:
        return
    proposals = int(sample.proposed_at[0])
    for position in range(1, sample.depth):
        accepted, proposed = int(sample.accepted_at[position]), int(sample.proposed_at[position])
        if proposed < MIN_STEPS or not proposals:
            return
        if accepted / proposed - accepted / proposals > _SPREAD:
            yield Finding(
                id="metrics/variable-length",
                strength=Strength.HINT,
                summary="Proposals differ in length, so rates per position divided by all proposals "
                f"(vLLM's) look too low from position {position} on.",
                advice="Read the rates given proposed; spectrace stats prints both.",
                evidence={
                    "unconditional": Share(accepted, proposals),
                    "given_proposed": Share(accepted, proposed),
                    "position": position,
                },
            )
            return
