"""Is the number what it is called: bonus counted or not, pooled or averaged, tokens after the end?

Every formula is computed from the same steps; the number that the engine printed is matched to one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from spectrace.analysis.diagnosis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import MIN_STEPS, Sample, Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.intervals import Share
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


def formulas(facts: Facts) -> dict[str, tuple[float | None, str]]:
    """Every accept length and rate of the run: name -> (value, formula)."""
    sample, tally = facts.sample, facts.of(CountTally)
    steps = sample.proposals
    found: dict[str, tuple[float | None, str]] = {
        "accept_length": (_ratio(tally.committed, steps), "committed / proposals, nothing after the end"),
        "accept_length_pooled": (sample.accept_length, "1 + accepted / proposals, vLLM's"),
        "accept_length_after_end": (
            _ratio(tally.counted, steps),
            "1 + accepted / proposals, tokens after EOS counted",
        ),
        "accept_length_without_bonus": (_ratio(sample.accepted_sum, steps), "accepted / proposals"),
        "accept_length_mean_of_requests": (
            mean_of_requests(sample),
            "mean of the requests' 1 + accepted / proposals",
        ),
        "emitted_per_step": (
            _ratio(facts.counts.emitted, facts.num_steps),
            "emitted / steps, prefills included",
        ),
        "acceptance_rate": (_ratio(sample.accepted_sum, sample.drafted), "accepted / drafted"),
    }
    return found


def mean_of_requests(sample: Sample) -> float | None:
    """Mean of the accept lengths of the requests, each weighing the same."""
    proposals, accepted = sample.request_proposals.values, sample.request_accepted.values
    used = proposals > 0
    return float((1 + accepted[used] / proposals[used]).mean()) if used.any() else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


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
    known = formulas(facts)
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
    for name, value in asked.items():
        yield _matched(name, float(value), known)


def _matched(name: str, value: float, known: Mapping[str, tuple[float | None, str]]) -> Outcome:
    usual = ("acceptance_rate",) if name == "acceptance_rate" else ("accept_length_pooled", "accept_length")
    matches = [n for n, (own, _) in known.items() if own is not None and _same(value, own)]
    evidence = {"reported": value, **{n: own for n, (own, _) in known.items()}}
    if any(n in matches for n in usual):
        return Cleared(
            id="metrics/formula", summary=f"the reported {value:g} is {known[usual[0]][1]}", evidence=evidence
        )
    if (
        name == "acceptance_rate"
        and known["acceptance_rate"][0] is not None
        and _same(value, 100 * known["acceptance_rate"][0])
    ):
        return Cleared(
            id="metrics/formula", summary=f"the reported {value:g} is per cent of accepted / drafted"
        )
    if matches:
        formula = known[matches[0]][1]
        return Finding(
            id="metrics/formula",
            strength=Strength.CERTAIN,
            summary=f"The reported {name} {value:g} is another formula over the same steps: {formula}.",
            advice="Compare only equal formulas; 1 + accepted / proposals is "
            f"{known['accept_length_pooled'][0]:.3f} here.",
            evidence=evidence,
        )
    return NotChecked(
        id="metrics/formula",
        reason=f"no formula over these steps gives the reported {value:g}; it may cover other steps (a "
        "server's "
        "average since start)",
    )


def _same(reported: float, computed: float) -> bool:
    """Equal within the rounding of the reported number, at least to two digits."""
    text = f"{reported:.10g}"
    digits = len(text.partition(".")[2])
    return abs(reported - computed) <= 0.5 * 10.0 ** -max(digits, 2) + 1e-9


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
