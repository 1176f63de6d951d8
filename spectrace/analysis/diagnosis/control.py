"""What a second trace of the same prompts adds: a control, another engine, version or precision.

Pure functions over the facts of both. Texts are compared up to the first difference and no further.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spectrace.analysis.acceptance import accept_length
from spectrace.analysis.diagnosis.control_texts import Fork
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.metrics import CountTally
from spectrace.analysis.diagnosis.sample import MIN_PROMPTS
from spectrace.analysis.diagnosis.ties import is_tie, tie_limit, unit_in_last_place
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.diagnosis.verification import is_greedy
from spectrace.analysis.formulas import mean_accept_length
from spectrace.format.records import Run

_BITS = {
    "float32": 32,
    "fp32": 32,
    "float16": 16,
    "bfloat16": 16,
    "fp16": 16,
    "bf16": 16,
    "fp8": 8,
    "float8": 8,
}
_MOVES = 0.05
"""Change of alpha1 from which precision is to blame."""
_COMPARED = (
    "engine",
    "method",
    "target",
    "draft",
    "vocab_map",
    "taps",
    "verification",
    "sampling",
    "speculation",
)


def judge_forks(facts: Facts, forks: Sequence[Fork], num_pairs: int) -> Iterator[Outcome]:
    """Whether texts that part do so by rounding (greedy runs only)."""
    if not is_greedy(facts.run):
        yield NotChecked(id="numeric-tie", reason="the run samples, or does not say: its texts may differ")
        return
    if not num_pairs:
        yield NotChecked(id="numeric-tie", reason="the two traces have no prompt in common")
        return
    if not forks:
        yield Cleared(id="numeric-tie", summary=f"the texts of all {num_pairs} common prompts are the same")
        return
    limit = tie_limit(facts.run)
    known = [fork for fork in forks if fork.gap is not None]
    if not known:
        yield facts.not_recorded(
            "numeric-tie", "record gap and first choices of the target", "target_gaps", "target_top"
        )
        return
    wide = [f for f in known if not is_tie(f.gap or 0.0, f.rank_of_other, limit)]
    fork = (wide or known)[0]
    unit = unit_in_last_place(facts.run)
    evidence: dict[str, Any] = {
        "token": fork.token,
        "gap": fork.gap,
        "units_in_last_place": None if fork.gap is None else fork.gap / unit,
        "rank_of_other": fork.rank_of_other,
        "texts_that_part": len(forks),
        "texts_compared": num_pairs,
    }
    if wide:
        yield Cleared(
            id="numeric-tie",
            summary=f"{fork.request} parts at token {fork.token} by a gap of {fork.gap:.3f}: no tie. "
            "Look at kv-state, verification and processors",
            evidence=evidence,
        )
        return
    yield Finding(
        id="numeric-tie/benign",
        strength=Strength.CERTAIN,
        summary=f"The texts part at token {fork.token} in a tie: gap {fork.gap:.3f}, "
        f"{(fork.gap or 0) / unit:.0f} unit in the last place. That is rounding, not a fault.",
        advice="Compare nothing behind that token; use float32 where equal text is needed.",
        evidence=evidence,
        steps=fork.steps[:1],
    )


def judge_metrics(facts: Facts, control: Facts) -> Iterator[Outcome]:
    """Whether one trace is ahead by one formula and behind by another."""
    mine, theirs = facts.of(CountTally), control.of(CountTally)
    pooled = accept_length(mine.counts), accept_length(theirs.counts)
    means = mean_accept_length(mine.requests), mean_accept_length(theirs.requests)
    if None in pooled or None in means:
        return
    evidence = {
        "accept_length_pooled": list(pooled),
        "accept_length_mean_of_requests": list(means),
        "alpha1": facts.sample.alpha1,
        "alpha1_of_control": control.sample.alpha1,
    }
    if _sign(pooled) * _sign(means) < 0:
        yield Finding(
            id="metrics/formula",
            strength=Strength.CERTAIN,
            summary=f"Which run is ahead depends on the formula: pooled {pooled[0]:.2f} against "
            f"{pooled[1]:.2f}, "
            f"mean of the requests {means[0]:.2f} against {means[1]:.2f}.",
            advice="Compare request by request; long requests weigh more in the pooled number.",
            evidence=evidence,
        )
    else:
        yield Cleared(id="metrics/ranking", summary="pooled and averaged numbers agree on which run is ahead")


def _sign(pair: tuple[float | None, float | None]) -> int:
    difference = (pair[0] or 0.0) - (pair[1] or 0.0)
    return 0 if abs(difference) < 1e-9 else 1 if difference > 0 else -1


def judge_regression(facts: Facts, control: Facts, num_pairs: int) -> Iterator[Outcome]:
    """Whether the same draft on the same prompts is accepted otherwise."""
    a, b = facts.sample.alpha1, control.sample.alpha1
    if num_pairs < MIN_PROMPTS or not facts.sample.is_enough or not control.sample.is_enough:
        yield NotChecked(
            id="drift/regression",
            reason=f"{num_pairs} common prompts; at least {MIN_PROMPTS} and 200 proposals in each trace "
            "are needed",
        )
        return
    differing = differing_fields(facts.run_mapping, control.run_mapping)
    evidence = {"alpha1": a, "alpha1_of_control": b, "differing_fields": differing[:16]}
    if any(
        name.startswith(("vocab_map.digest", "draft.fingerprints", "draft.revision")) for name in differing
    ):
        yield NotChecked(id="drift/regression", reason="the two runs have different drafts or maps")
    elif a.overlaps(b):
        yield Cleared(id="drift/regression", summary="both runs are accepted alike", evidence=evidence)
    else:
        yield Finding(
            id="drift/regression",
            strength=Strength.STRONG,
            summary=f"On the same prompts the first draft token is accepted {a.value:.2f} of the time, "
            f"in the control {b.value:.2f}.",
            advice="Change back one by one what differs: "
            f"{', '.join(differing[:5]) or 'nothing in the headers'}.",
            evidence=evidence,
        )


def differing_fields(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Paths of header fields whose values differ, sections that bear on acceptance only."""
    found: list[str] = []
    for key in _COMPARED if not prefix else sorted({*one, *other}):
        mine, theirs = one.get(key), other.get(key)
        path = f"{prefix}{key}"
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            found += differing_fields(mine, theirs, f"{path}.")
        elif mine != theirs:
            found.append(path)
    return found


def judge_precision(facts: Facts, control: Facts) -> Iterator[Outcome]:
    """A ladder of two rungs: does acceptance follow the bits of the draft?"""
    bits, other_bits = draft_bits(facts.run), draft_bits(control.run)
    if bits is None or other_bits is None or bits == other_bits:
        return
    a, b = facts.sample.alpha1, control.sample.alpha1
    low, high = (a, b) if bits < other_bits else (b, a)
    evidence = {"bits": bits, "bits_of_control": other_bits, "alpha1": a, "alpha1_of_control": b}
    moved = (high.value or 0.0) - (low.value or 0.0)
    if not facts.sample.is_enough or not control.sample.is_enough:
        return
    if moved > _MOVES and not low.overlaps(high):
        yield Finding(
            id="weights/precision",
            strength=Strength.STRONG,
            summary=f"Acceptance follows the draft's precision: {low.value:.2f} with "
            f"{min(bits, other_bits)} bits, "
            f"{high.value:.2f} with {max(bits, other_bits)}.",
            advice="Keep the draft, or at least its head, in the higher precision.",
            evidence=evidence,
        )
    else:
        yield Cleared(
            id="weights/precision", summary="acceptance does not follow the bits", evidence=evidence
        )


def draft_bits(run: Run) -> int | None:
    """Bits of the draft's weights, from its quantisation or else its type.

    >>> from spectrace.format.records import Draft
    >>> draft_bits(Run(draft=Draft(quantization="w4a16"))), draft_bits(Run(draft=Draft(dtype="bfloat16")))
    (4, 16)
    """
    draft = run.draft
    if draft is None:
        return None
    name = (draft.quantization or draft.dtype or "").lower().removeprefix("torch.")
    if name in _BITS:
        return _BITS[name]
    found = re.search(r"(?:int|w|q|fp|nf|bit)(\d{1,2})|(\d{1,2})bit", name)
    return int(found.group(1) or found.group(2)) if found else None
