"""What a control run shows: the target drafting for itself, predictable text, no draft at all.

A control differs from the run in question in one thing, so what it does right is ruled out there. The
header's ``control`` says which one a trace is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spectrace.analysis.diagnosis.foreseen import Foreseen, foreseen
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.counts import Counts
from spectrace.format.records import Run

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

SELF_DRAFT, PREDICTABLE_TEXT, NO_DRAFT = "self-draft", "predictable-text", "no-draft"
KINDS = (SELF_DRAFT, PREDICTABLE_TEXT, NO_DRAFT)

_ALL = 0.98
"""Share of its own drafts that a target accepts; what is missing are ties that rounding decides."""
_NEAR_ONE = 0.9
"""alpha1, where the target goes on as foreseen, of a draft that is loaded, mapped and fed well."""
_MIN_DECISIONS = 50


def control_of(trace: Trace) -> Outcome | None:
    """What a control run rules out or shows; None where the trace is no control.

    Args:
        trace: an open trace; only one on predictable text is read.
    """
    is_predictable = trace.run.control == PREDICTABLE_TEXT
    return judge_control(trace.run, trace.counts, foreseen(trace) if is_predictable else None)


def judge_control(run: Run, counts: Counts, pattern: Foreseen | None = None) -> Outcome | None:
    """The same of a control's header and counts.

    Args:
        run: header of the control.
        counts: of the same trace.
        pattern: how the target went on with a predictable text; None where no prompt repeats itself.
    """
    if run.control == PREDICTABLE_TEXT:
        return _predictable(pattern)
    judge = {SELF_DRAFT: _self_draft, NO_DRAFT: _no_draft}.get(run.control or "")
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


def _predictable(pattern: Foreseen | None) -> Outcome:
    """Only steps count in which the target itself went on as the text foresees."""
    id_ = "draft-head/predictable-text"
    if pattern is None:
        return NotChecked(
            id=id_,
            reason="no prompt whose ids are known repeats itself: what the target should say is unknown",
            how="leave --prompt, --prompts and --chat out: the built-in texts repeat themselves",
        )
    went_on, first = pattern
    steps = f"{went_on.successes:,} of {went_on.trials:,} steps"
    if went_on.successes < _MIN_DECISIONS:
        few = went_on.trials < 2 * _MIN_DECISIONS and (went_on.value or 0) >= 0.5
        return NotChecked(
            id=id_,
            reason=f"the target went on as foreseen in {steps}: "
            + ("too few" if few else "it does not continue the patterns, so nothing is shown"),
            how="record more tokens: --max-new-tokens" if few else "use --control self-draft",
        )
    evidence = {"went_on_as_foreseen": went_on, "alpha1_there": first}
    if (first.value or 0) >= _NEAR_ONE:
        return Cleared(
            id=id_,
            summary=f"the target went on as foreseen in {steps}, and there {first.value:.1%} of the first "
            "draft tokens are accepted: the draft is loaded, mapped and fed rightly; elsewhere it is weak, "
            "not broken",
            evidence=evidence,
        )
    return Finding(
        id=id_,
        strength=Strength.HINT,
        summary=f"The target went on as foreseen in {steps}, but there only {first.value:.1%} of "
        "the first draft tokens are accepted: the draft is broken, or has not learned to repeat.",
        advice="Look at the draft with spectrace check, and at an EAGLE-3 one with spectrace probe.",
        evidence=evidence,
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
