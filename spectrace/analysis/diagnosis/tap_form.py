"""Are the hidden states that the draft is fed in the form it was trained with?

Fingerprints tell apart: normed or not, rotated, without their residual, in another order, of another width,
stale, right in the prompt and wrong after it. Where none of these fits, it says so and asks for one
training row. Fingerprints are 32 projections: cosines of different states carry noise of about .18 a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.fingerprints import TapTally
from spectrace.analysis.diagnosis.reference import Match, TapComparison, compare_taps, cosine
from spectrace.analysis.diagnosis.tap_layer import SAME
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.columns import Array

_DIFFERENT = 0.9
"""Cosine below which a state is not the reference's in any precision."""
_UNRELATED = 0.35
"""Cosine that unrelated fingerprints may reach: two standard deviations of the projections' noise."""
_STEADY = 0.05
"""Relative spread of RMS over rows that a norm leaves."""
_NORM_RATIO = 2.0
_NORM_SAME = 0.1
"""Relative difference of RMS between taps that have all passed the same norm."""
_WEIGHTED = 0.7
"""Least cosine that a norm with weights leaves; RMSNorm alone leaves 1."""
_KEPT = 0.5
"""Least correlation of inner products between rows that a rotation leaves in 32 projections."""
_SAME_RMS = 0.01
_RESIDUAL = 0.02
_LOW = 0.35
_TRAINED_WELL = 0.6


def judge(facts: Facts) -> Iterator[Outcome]:
    """Width, order, staleness, form."""
    yield from _width(facts)
    yield from _order(facts)
    yield from _stale(facts)
    compared = compare_taps(facts)
    if compared is None and facts.shares_vocabulary:
        yield Cleared(id="tap-form", summary="the draft is fed no hidden states")
    elif compared is None:
        yield facts.not_recorded(
            "tap-form",
            "fingerprint taps and one reference forward over the prompt",
            "taps.projections",
            "reference",
        )
    else:
        yield from _form(facts, compared)


def _width(facts: Facts) -> Iterator[Outcome]:
    tally, target, taps = facts.of(TapTally), facts.run.target, facts.run.taps
    size = None if target is None else target.hidden_size
    if not tally.widths or not size:
        return
    declared = () if taps is None else (taps.boundaries or taps.declared or ())
    wrong = {width: n for width, n in tally.widths.items() if width not in (size, size * len(declared))}
    if not wrong:
        yield Cleared(id="tap-form/width", summary=f"all states are {size:,} wide")
        return
    yield Finding(
        id="tap-form/width",
        strength=Strength.CERTAIN,
        summary=f"States of width {next(iter(wrong)):,} were captured; the target's are {size:,} wide.",
        advice="Look at what is concatenated or cut before the draft's first layer.",
        evidence={"widths": wrong, "hidden_size": size, "rows": sum(tally.widths.values())},
        steps=sorted(tally.width_steps[width] for width in wrong)[:5],
    )


def _order(facts: Facts) -> Iterator[Finding]:
    """The header says itself that the states are joined in another order than declared."""
    taps = facts.run.taps
    if taps is None or not taps.order or len(taps.order) < 2:
        return
    order, captured = list(taps.order), list(taps.boundaries or taps.declared or ())
    is_permutation = sorted(order) == list(range(len(order)))
    expected = list(range(len(order))) if is_permutation else captured
    if order != expected and sorted(order) == sorted(expected):
        yield _order_finding({"order": order, "boundaries_captured": captured})


def _order_finding(evidence: dict[str, Any], steps: Sequence[int] = ()) -> Finding:
    return Finding(
        id="tap-form/order",
        strength=Strength.CERTAIN,
        summary="The states of the tapped layers are joined in another order than the draft was trained "
        "with.",
        advice="Concatenate them in the order of the training config, lowest layer first unless it says "
        "otherwise.",
        evidence=evidence,
        steps=sorted(set(steps))[:5],
    )


def _stale(facts: Facts) -> Iterator[Outcome]:
    tally = facts.of(TapTally)
    if not tally.compared:
        return
    share = Share(tally.repeated + tally.zero, tally.compared)
    if share.successes:
        yield Finding(
            id="tap-form/stale-rows",
            strength=Strength.STRONG,
            summary="States of one token were fed again for another, or are all zero: the buffer is stale.",
            advice="Check which rows of the state buffer are gathered after a rejection and for a new "
            "request.",
            evidence={"rows_repeated_or_zero": share, "zero_rows": tally.zero},
            steps=tally.stale_steps,
        )
    else:
        yield Cleared(id="tap-form/stale-rows", summary=f"no state is fed twice in {tally.compared:,} rows")


# --- form --------------------------------------------------------------------------------------


def _form(facts: Facts, compared: TapComparison) -> Iterator[Outcome]:
    """The first branch that fits."""
    split = _prefill_decode(compared)
    if split is not None:
        yield split
        return
    best, declared = compared.best, compared.declared
    is_same = min(compared.best_cosine) >= SAME
    if is_same and best != declared and sorted(best) == sorted(declared):
        evidence = {
            "boundaries_meant": declared,
            "boundaries_nearest": best,
            "rows_compared": compared.num_rows,
        }
        yield _order_finding(evidence, [step for match in compared.matches for step in match.steps[:1]])
        return
    lacking = [match.declared for match in compared.matches if match.declared not in compared.references]
    if lacking and not is_same:
        yield NotChecked(
            id="tap-form",
            reason=f"no reference rows of boundary {lacking[0]}",
            how="run the reference forward over all layers",
            missing=("reference",),
        )
        return
    # A state that matches another boundary is a matter of layers.
    matches = [m for m, b in zip(compared.matches, best) if not is_same or b == m.declared]
    found = next((f for match in matches if (f := _named_form(compared, match)) is not None), None)
    if found is None:
        found = _unknown(facts, compared)
    if found is not None:
        yield found
    elif min(compared.best_cosine) >= _DIFFERENT:
        yield Cleared(
            id="tap-form",
            summary=f"states match the reference, cosine at least {min(compared.best_cosine):.3f}",
            evidence={"cosine_at_nearest": compared.best_cosine, "rows_compared": compared.num_rows},
        )


def _named_form(compared: TapComparison, match: Match) -> Finding | None:
    """The known form that explains a tap, the exact ones first."""
    rows, rms, there = compared.reference_rows(match, match.declared)
    return (
        _residual(compared, match)
        or _norm(match, rows[there], rms[there], there, _which_norm(compared))
        or _rotated(match, rows[there], rms[there], there)
    )


def _prefill_decode(compared: TapComparison) -> Finding | None:
    """Rows of the prompt match and rows after it do not."""
    inside: list[float] = []
    after: list[float] = []
    steps: list[int] = []
    for match in compared.matches:
        if match.declared not in compared.references:
            continue
        rows, _, there = compared.reference_rows(match, match.declared)
        values = np.where(there, cosine(np.nan_to_num(match.rows), np.nan_to_num(rows)), np.nan)
        inside += values[there & match.is_prefill].tolist()
        after += values[there & ~match.is_prefill].tolist()
        steps += [s for s, used in zip(match.steps, there & ~match.is_prefill) if used]
    if len(inside) < 2 or len(after) < 2 or np.mean(inside) < SAME or np.mean(after) > _DIFFERENT:
        return None
    return Finding(
        id="tap-form/prefill-decode",
        strength=Strength.STRONG,
        summary="The draft gets the right states for the prompt and wrong ones after it.",
        advice="Look at the handover from prefill to decode: which rows, which buffer, which layer's output.",
        evidence={
            "cosine_in_prefill": float(np.mean(inside)),
            "cosine_in_decode": float(np.mean(after)),
            "rows_in_prefill": len(inside),
            "rows_in_decode": len(after),
        },
        steps=sorted(set(steps))[:5],
    )


def _which_norm(compared: TapComparison) -> str:
    """The final norm is the only one that every tap can have passed: then all leave with the same size."""
    sizes = [float(np.median(match.rms)) for match in compared.matches if len(match.rms)]
    is_one = len(sizes) > 1 and 0 < max(sizes) < (1 + _NORM_SAME) * min(sizes)
    return "the target's final norm, which is the same for every tap" if is_one else "a norm"


def _norm(match: Match, rows: Array, rms: Array, there: Array, name: str) -> Finding | None:
    """One side has the constant RMS of a norm, the other has not, and they point much the same way."""
    own = match.rms[there]
    if not len(own) or not (
        np.isfinite(own).all() and np.isfinite(rms).all() and (rms > 0).all() and (own > 0).all()
    ):
        return None
    ratio = float(np.median(own / rms))
    likeness = float(cosine(match.rows[there], rows).mean())
    same_size = max(ratio, 1 / ratio)
    is_steady = {"tap": _spread_of(own) < _STEADY, "reference": _spread_of(rms) < _STEADY}
    is_scaled = likeness >= SAME and same_size > 1 + _STEADY
    is_weighted = _WEIGHTED < likeness < SAME and same_size > _NORM_RATIO and any(is_steady.values())
    if not (is_scaled or is_weighted) or not any(is_steady.values()):
        return None
    is_before = ratio > 1 if is_steady["tap"] == is_steady["reference"] else is_steady["reference"]
    where = (
        "before the final norm, the draft expects it after"
        if is_before
        else f"after {name}; the draft expects it before"
    )
    return Finding(
        id="tap-form/norm",
        strength=Strength.CERTAIN,
        summary=f"The hidden state was captured {where}.",
        advice="Apply the norm the draft was trained with before its first layer."
        if is_before
        else "Hand over the state before the norm.",
        evidence={
            "tap": f"B({match.declared})",
            "rms": float(np.median(own)),
            "rms_of_reference": float(np.median(rms)),
            "cosine": likeness,
            "rows_compared": len(own),
        },
        steps=sorted(set(match.steps))[:5],
    )


def _spread_of(values: Array) -> float:
    return float(values.std() / values.mean()) if len(values) else 0.0


def _rotated(match: Match, rows: Array, rms: Array, there: Array) -> Finding | None:
    """Every row keeps its length and loses its direction."""
    own = match.rms[there]
    if len(own) < 4 or not np.isfinite(own).all() or not np.isfinite(rms).all() or not (rms > 0).all():
        return None
    likeness = float(cosine(match.rows[there], rows).mean())
    if abs(likeness) > _UNRELATED or np.abs(own / rms - 1).max() > _SAME_RMS:
        return None
    kept = _gram_likeness(match.rows[there], rows)
    # Rows of very different length that all keep theirs leave no doubt; 32 projections blur inner products.
    if kept < _KEPT and _spread_of(rms) < 10 * _SAME_RMS:
        return None
    return Finding(
        id="tap-form/rotated",
        strength=Strength.CERTAIN if _spread_of(rms) > 2 * _SAME_RMS else Strength.STRONG,
        summary="Every hidden state has the length of the reference's and another direction: an orthogonal "
        "rotation.",
        advice="A rotated (quantised) target needs the inverse rotation before the draft, or a draft "
        "trained on it.",
        evidence={
            "tap": f"B({match.declared})",
            "cosine": likeness,
            "rms_ratio_largest_deviation": float(np.abs(own / rms - 1).max()),
            "inner_products_kept": kept,
            "rows_compared": len(own),
        },
        steps=sorted(set(match.steps))[:5],
    )


def _gram_likeness(a: Array, b: Array) -> float:
    """Correlation of the inner products between rows; near 1 when a rotation keeps them."""
    upper = np.triu_indices(len(a), 1)
    x, y = (a @ a.T)[upper], (b @ b.T)[upper]
    if len(x) < 2 or not x.std() or not y.std():
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def _residual(compared: TapComparison, match: Match) -> Finding | None:
    """The reference less an earlier boundary gives the tap: the residual stream was left out."""
    rows, _, there = compared.reference_rows(match, match.declared)
    own = np.linalg.norm(match.rows[there], axis=1)
    if there.any() and (own > 0).all():
        apart = np.linalg.norm(match.rows[there] - rows[there], axis=1)
        if float((apart / own).mean()) < _RESIDUAL:
            return (
                None  # it is the reference; a boundary of small states, the embeddings say, changes nothing
            )
    for boundary in compared.boundaries:
        if boundary == match.declared:
            continue
        other, _, both = compared.reference_rows(match, boundary)
        both &= there
        if not both.any():
            continue
        missing = match.rows[both] - (rows[both] - other[both])
        size = np.linalg.norm(match.rows[both], axis=1)
        if (size > 0).all() and float((np.linalg.norm(missing, axis=1) / size).mean()) < _RESIDUAL:
            return Finding(
                id="tap-form/residual",
                strength=Strength.CERTAIN,
                summary=f"The state at boundary {match.declared} was captured without the residual of "
                f"boundary {boundary}.",
                advice="Add hidden state and residual before handing them to the draft.",
                evidence={
                    "tap": f"B({match.declared})",
                    "missing_boundary": boundary,
                    "rows_compared": int(both.sum()),
                },
                steps=sorted(set(match.steps))[:5],
            )
    return None


def _unknown(facts: Facts, compared: TapComparison) -> Finding | None:
    """No boundary and no form fits."""
    match = compared.matches[int(np.argmin(compared.best_cosine))]
    if match.declared not in compared.references:
        return None
    _, rms, there = compared.reference_rows(match, match.declared)
    is_complete = np.isfinite(match.rms[there]).all() and np.isfinite(rms[there]).all()
    if min(compared.best_cosine) >= _DIFFERENT or not is_complete:
        return None
    sample, trained = facts.sample, (facts.run.training or {}).get("first_position_accuracy")
    promised = float(trained) if isinstance(trained, (int, float)) else 0.0
    is_promised = promised >= _TRAINED_WELL
    is_low = (sample.alpha1.value or 0) < _LOW or (is_promised and sample.alpha1.high < promised)
    is_strong = sample.is_enough and is_low and (is_promised or trained is None)
    return Finding(
        id="tap-form/unknown",
        strength=Strength.STRONG if is_strong else Strength.HINT,
        summary="The hidden states fed to the draft differ from the target's at every layer, and no known "
        "form "
        "explains it: training and serving inputs differ.",
        advice="Compare with one training row: the state of one token as the draft saw it in training.",
        evidence={
            "boundaries_nearest": compared.best,
            "cosine_at_nearest": [round(c, 3) for c in compared.best_cosine],
            "alpha1": sample.alpha1,
            "training_first_position_accuracy": trained,
            "rows_compared": compared.num_rows,
        },
        steps=sorted(set(match.steps))[:5],
    )
