"""What a control run shows: the target drafting for itself, predictable text, no draft at all.

A control differs from the run in question in one thing, so what it does right is ruled out there. The
header's ``control`` says which one a trace is.
"""

from __future__ import annotations

from spectrace.analysis.acceptance import alpha1
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.counts import Counts
from spectrace.format.records import Run

SELF_DRAFT, PREDICTABLE_TEXT, NO_DRAFT = "self-draft", "predictable-text", "no-draft"
KINDS = (SELF_DRAFT, PREDICTABLE_TEXT, NO_DRAFT)

_ALL = 0.98
"""Share of its own drafts that a target accepts; what is missing are ties that rounding decides."""
_NEAR_ONE = 0.9
"""alpha1 on predictable text of a draft that is loaded, mapped and fed well."""
_MIN_DECISIONS = 50


def judge_control(run: Run, counts: Counts) -> Outcome | None:
    """What a control run rules out or shows; None where the trace is no control.

    Args:
        run: header of the control.
        counts: of the same trace.
    """
    judge = {SELF_DRAFT: _self_draft, PREDICTABLE_TEXT: _predictable, NO_DRAFT: _no_draft}.get(
        run.control or ""
    )
    return None if judge is None else judge(run, counts)


def _self_draft(run: Run, counts: Counts) -> Outcome:
    """Source: diagnosis of public reports; the threshold leaves room for ties in half precision."""
    decisions = Share(counts.accepted, counts.accepted + counts.rejected)
    id_, evidence = "verification/self-draft", {"accepted_of_its_own": decisions}
    if decisions.trials < _MIN_DECISIONS:
        return NotChecked(
            id=id_,
            reason=f"{decisions.trials:,} decisions are too few",
            how=f"record a self-draft control with {_MIN_DECISIONS} draft tokens at least",
        )
    if (decisions.value or 0) >= _ALL:
        return Cleared(
            id=id_,
            summary=f"drafting for itself the target accepts {decisions.value:.1%} of its own tokens: "
            "verifier, positions, KV state and processors are ruled out, what is low is the draft",
            evidence=evidence,
        )
    return Finding(
        id=id_,
        strength=Strength.CERTAIN,
        summary=f"Drafting for itself the target refuses {1 - (decisions.value or 0):.1%} of its own tokens: "
        "the engine is at fault, not the draft.",
        advice="Look at verifier, positions, KV state and processors where the first of them is refused.",
        evidence=evidence,
    )


def _predictable(run: Run, counts: Counts) -> Outcome:
    first = Share(counts.accepted_at[0] if counts.accepted_at else 0, counts.proposals)
    id_, evidence = "draft-head/predictable-text", {"alpha1_on_predictable_text": first}
    if first.trials >= _MIN_DECISIONS and (alpha1(counts) or 0) >= _NEAR_ONE:
        return Cleared(
            id=id_,
            summary=f"on predictable text {first.value:.1%} of the first draft tokens are accepted: the "
            "draft is loaded, mapped and fed rightly; elsewhere it is weak, not broken",
            evidence=evidence,
        )
    share = "-" if first.value is None else f"{first.value:.1%}"
    return NotChecked(
        id=id_,
        reason=f"on predictable text {share} of {first.trials:,} first draft tokens are accepted: the "
        "draft is broken, or the target did not go on as foreseen",
        how="look at the text with spectrace view; if it is as foreseen, look at the draft with spectrace "
        "check",
    )


def _no_draft(run: Run, counts: Counts) -> Outcome:
    token_ns = (run.baseline or {}).get("token_ns")
    is_known = isinstance(token_ns, int | float) and not isinstance(token_ns, bool)
    each = f"{token_ns / 1e6:.3f} ms" if is_known and token_ns is not None else "unknown"
    return Cleared(
        id="cost/baseline",
        summary=f"without a draft: {counts.emitted:,} tokens, time per token {each}; the text is the "
        "reference for a lossless run",
        evidence={"token_ns": token_ns, "tokens": counts.emitted},
    )
