"""Does speculation pay at all? Recorded times against the time per token without it.

Low acceptance is not the point here: a well accepted draft can be too dear, and a poor one can pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.cost import Choice, Times, choices
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.verdict import Cleared, Counterfactual, Finding, Outcome, Strength
from spectrace.format.columns import Array
from spectrace.format.counts import MAX_POSITIONS
from spectrace.format.figures import count_of
from spectrace.format.records import Run

_PHASES = ("draft_ns", "verify_ns", "step_ns")
_VERIFY_BOUND, _DRAFT_BOUND, _OVERHEAD = 1.5, 0.2, 0.2


class TimeTally:
    """Times by number of draft tokens."""

    FIELDS = ("draft_ns", "verify_ns", "step_ns", "proposal_ids", "flags", "num_accepted", "emitted_ids")

    def __init__(self, run: Run) -> None:
        self.steps = np.zeros(MAX_POSITIONS + 1, np.int64)
        """[K] steps with draft and verify time."""
        self.sums: dict[str, Array] = {name: np.zeros(MAX_POSITIONS + 1) for name in _PHASES}
        self.accepted = np.zeros(MAX_POSITIONS + 1, np.int64)
        self.whole = True
        """Every timed step has the time of the whole step too."""

    def add(self, block: Block) -> None:
        """Counts a block."""
        phases = {name: block.scalar(name) for name in _PHASES}
        draft, verify, step = (phases[name] for name in _PHASES)
        if verify is None:
            return
        rows = verify.known & ~block.is_prefill & ~block.flagged("dummy", "replay", "simulated")
        rows &= (block.drafted == 0) if draft is None else (draft.known | (block.drafted == 0))
        size = np.minimum(block.drafted[rows], MAX_POSITIONS)
        self.steps += np.bincount(size, minlength=MAX_POSITIONS + 1)
        self.accepted += np.bincount(size, weights=block.accepted[rows], minlength=MAX_POSITIONS + 1).astype(
            np.int64
        )
        for name, found in phases.items():
            if found is not None:
                values = np.maximum(found.values[rows], 0)
                self.sums[name] += np.bincount(size, weights=values, minlength=MAX_POSITIONS + 1)
        if step is None or not step.known[rows].all():
            self.whole = False

    def times(self) -> dict[int, Times]:
        """K -> times."""
        return {
            k: Times(
                steps=int(self.steps[k]),
                draft_ns=float(self.sums["draft_ns"][k]),
                verify_ns=float(self.sums["verify_ns"][k]),
                step_ns=float(self.sums["step_ns"][k]) if self.whole else None,
            )
            for k in np.flatnonzero(self.steps).tolist()
        }


def baseline_ns(run: Run) -> float | None:
    """Time per token without speculation."""
    value = (run.baseline or {}).get("token_ns")
    return (
        float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        else None
    )


def survival(facts: Facts) -> list[float]:
    """[position] share accepted up to there, of the proposals that were long enough."""
    sample = facts.sample
    return [int(sample.accepted_at[j]) / int(sample.proposed_at[j]) for j in range(sample.depth)]


def judge(facts: Facts) -> Iterator[Outcome]:
    """Accept length against the break-even, at the usual number of draft tokens."""
    token_ns, times = baseline_ns(facts.run), facts.of(TimeTally).times()
    usual = max((k for k in times if k), key=lambda k: times[k].steps, default=None)
    if token_ns is None or usual is None or not times[usual].per_step:
        yield facts.not_recorded(
            "cost/below-break-even",
            "record times, and measure the time per token without speculation (record --compare-baseline)",
            *([] if token_ns is not None else ["baseline.token_ns"]),
            *([] if usual is not None else ["draft_ns", "verify_ns"]),
        )
        return
    options = choices(survival(facts), times, token_ns)
    accept_length = 1 + int(facts.of(TimeTally).accepted[usual]) / times[usual].steps
    break_even = times[usual].per_step / token_ns
    evidence: dict[str, Any] = {
        "num_draft_tokens": usual,
        "accept_length_of_those_proposals": accept_length,
        "break_even": break_even,
        "speedup": accept_length / break_even,
        "steps_timed": times[usual].steps,
        **_best(options),
        **_bounds(times, usual, token_ns),
    }
    if accept_length >= break_even:
        yield Cleared(
            id="cost/below-break-even",
            summary=f"{accept_length / break_even:.2f} times the speed without speculation",
            evidence=evidence,
        )
        return
    best = max(options, key=lambda option: option.speedup, default=None)
    advice = "Draft less or cheaper; no recorded number of draft tokens pays."
    if best is not None and best.speedup > 1:
        advice = (
            f"Draft {best.num_draft_tokens} tokens: {best.speedup:.2f} times the speed without speculation."
        )
    yield Finding(
        id="cost/below-break-even",
        strength=Strength.CERTAIN,
        summary=f"Slower by arithmetic: a proposal of {count_of(usual, 'draft token')} brings "
        f"{accept_length:.2f} tokens, but costs as much as "
        f"{break_even:.2f} tokens without speculation.",
        advice=advice,
        evidence=evidence,
    )


def _best(options: list[Choice]) -> dict[str, Any]:
    if not options:
        return {}
    best = max(options, key=lambda option: option.speedup)
    return {
        "best_num_draft_tokens": best.num_draft_tokens,
        "best_speedup": best.speedup,
        "speedup_by_num_draft_tokens": {str(o.num_draft_tokens): round(o.speedup, 3) for o in options[:16]},
    }


def _bounds(times: dict[int, Times], usual: int, token_ns: float) -> dict[str, Any]:
    """What the step is bound by."""
    own, found = times[usual], []
    plain = times.get(0)
    if (
        plain is not None
        and plain.verify_ns
        and own.verify_ns / own.steps > _VERIFY_BOUND * plain.verify_ns / plain.steps
    ):
        found.append("verify-bound")
    if own.draft_ns / own.steps / usual > _DRAFT_BOUND * token_ns:
        found.append("draft-bound")
    if own.other_share > _OVERHEAD:
        found.append("overhead")
    return {"bound_by": found} if found else {}


def counterfactual(facts: Facts) -> Iterator[Counterfactual]:
    """The best number of draft tokens."""
    token_ns = baseline_ns(facts.run)
    options = [] if token_ns is None else choices(survival(facts), facts.of(TimeTally).times(), token_ns)
    if len(options) < 2:
        return
    best = max(options, key=lambda option: option.speedup)
    yield Counterfactual(
        name="best-num-draft-tokens",
        summary=f"with {best.num_draft_tokens} draft tokens: accept length {best.accept_length:.2f}, "
        f"break-even {best.break_even:.2f}, {best.speedup:.2f} times the speed without speculation",
        evidence=_best(options),
    )
