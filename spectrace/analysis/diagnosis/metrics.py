"""Is the number what it is called: bonus counted or not, pooled or averaged, tokens after the end?

Every formula is computed from the same steps; the number that the engine printed is matched to one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import MIN_STEPS, Sample, Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.formulas import (
    FORMULAS,
    Given,
    RequestSums,
    Sums,
    explain,
    mean_accept_length,
    nominal_tokens,
)
from spectrace.analysis.intervals import Share
from spectrace.format.columns import Array
from spectrace.format.counts import Counts
from spectrace.format.records import Run

_AFTER_EOS = 0.05
"""Share of the accept length that tokens after the end must make up before it is a finding."""
_SPREAD = 0.1
"""Difference between two per-position rates that misleads."""


class CountTally:
    """What the engine counted beside what was committed."""

    FIELDS = (
        "num_accepted",
        "num_accepted_reported",
        "emitted_ids",
        "stop",
        "proposal_ids",
        "flags",
        "parents",
    )

    def __init__(self, run: Run) -> None:
        self.counted = 0
        """Tokens by the engine's count, the target's own included."""
        self.committed = 0
        self.after_end = 0
        self.steps = Witnesses()

    def add(self, block: Block) -> None:
        """Counts a block."""
        said = block.scalar("num_accepted_reported")
        accepted = block.raw_accepted
        counted = np.where(said.known, said.values, accepted) if said is not None else accepted
        counted = np.clip(np.maximum(counted, accepted), 0, block.drafted) + 1
        stop = block.words("stop")
        ended = np.zeros(block.num_rows, bool)
        if stop is not None:
            ended = np.isin(stop[0], [i for i, word in enumerate(stop[1]) if word in ("eos", "stop_string")])
        beyond = np.where(ended & block.is_real, np.maximum(counted - block.emitted, 0), 0)
        real = block.is_real
        self.counted += int(counted[real].sum())
        self.committed += int((counted - beyond)[real].sum())
        self.after_end += int(beyond.sum())
        # One token beyond is the target's own, which every formula grants; more were counted after the end.
        self.steps.note(block, beyond > 1)


def sums(facts: Facts) -> Sums:
    """What the formulas are made of: real proposals only, no dummy, replay or simulation."""
    sample = facts.sample
    counts = Counts(
        steps=facts.num_steps,
        proposals=sample.proposals,
        drafted=sample.drafted,
        accepted=sample.accepted_sum,
        emitted=facts.counts.emitted,
        emitted_by_proposals=sample.emitted,
        proposed_at=_until_empty(sample.proposed_at),
        reached_at=_until_empty(sample.reached_at),
        accepted_at=_until_empty(sample.accepted_at),
    )
    if sample.trees:  # the positions of a tree are depths, which the index has
        counts.proposed_at, counts.reached_at = facts.counts.proposed_at, facts.counts.reached_at
        counts.accepted_at = facts.counts.accepted_at
    return Sums(
        counts=counts,
        nominal=nominal_tokens(facts.run),
        counted=facts.of(CountTally).counted,
        requests=request_sums(sample),
    )


def request_sums(sample: Sample) -> RequestSums:
    """Sums of the requests that have a proposal."""
    used = sample.request_proposals.values > 0
    tallies = (
        sample.request_proposals,
        sample.request_drafted,
        sample.request_accepted,
        sample.request_emitted,
    )
    return RequestSums(*(tally.values[used] for tally in tallies))


def _until_empty(tally: Array) -> list[int]:
    found: list[int] = tally.tolist()
    while found and not found[-1]:
        found.pop()
    return found


def mean_of_requests(sample: Sample) -> float | None:
    """Mean of the accept lengths of the requests, each weighing the same."""
    return mean_accept_length(request_sums(sample))


def judge(facts: Facts) -> Iterator[Outcome]:
    """Tokens after the end, the reported numbers, proposals of different length."""
    yield from _after_eos(facts)
    yield from _reported(facts)
    yield from _variable_length(facts)


def _after_eos(facts: Facts) -> Iterator[Outcome]:
    tally, steps = facts.of(CountTally), facts.sample.proposals
    if not steps:
        return
    counted, committed = tally.counted / steps, tally.committed / steps
    evidence = {
        "accept_length_as_counted": counted,
        "accept_length": committed,
        "tokens_after_end": tally.after_end,
        "n": steps,
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
    if not facts.sample.proposals:
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
