"""What to look at next, in one to three sentences: the earliest cause first, as it makes the others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from spectrace.analysis.comparison.difference import INPUTS
from spectrace.analysis.comparison.fork import NO_TIE, OFF_PICK, SAMPLED, TIE, UNKNOWN, Fork
from spectrace.analysis.comparison.inputs import input_place, input_values
from spectrace.analysis.comparison.result import Comparison

_SENTENCES = 3
_LAYERS = {"taps.boundaries", "taps.order"}
_PRECISION = {"target.dtype", "target.quantization", "draft.dtype", "draft.quantization"}


def advise(found: Comparison) -> list[str]:
    """Up to three sentences; A and B stand for the two traces."""
    if found.alignment.problem is not None:
        return ["Record both runs with the same prompts: acceptance on different ones tells nothing."]
    return list(islice(_causes(found), _SENTENCES)) or [_nothing(found)]


def _causes(found: Comparison) -> Iterator[str]:
    kinds = found.first_differences.kinds
    if found.without_ids:
        yield from _of_inputs(found)
        yield (
            f"No token was compared, as there are no ids in {found.without_ids} (packed, or counts only): "
            "compare traces that were recorded, where they were recorded."
        )
        return
    if not kinds["emitted"].compared and not kinds["prompt"].differing:
        yield (
            "No token stands at the same place of both texts: are these the same prompts, and do both count "
            "position from the start of the prompt?"
        )
        return
    inputs = list(_of_inputs(found))
    yield from inputs
    if found.fork is not None:
        yield _of_fork(found.fork)
    elif kinds["decision"].differing and not kinds["target_pick"].differing:
        yield (
            "The targets pick the same tokens, but the same draft token is accepted by one and refused by "
            "the other: compare the verification rules."
        )
    elif kinds["target_pick"].differing:
        yield "The targets pick other tokens in the same text: compare sampling, processors and precision."
    if not inputs and (found.fork is None or found.fork.verdict != SAMPLED):
        yield from _of_proposals(found)


def _of_inputs(found: Comparison) -> Iterator[str]:
    """What went into the drafts: any of it explains their proposals."""
    fields = {item.field for item in found.headers if item.a is not None and item.b is not None}
    if found.first_differences.kinds["prompt"].differing:
        yield (
            "The prompts are other tokens: compare tokenizer, chat template and begin-of-text token "
            "before anything else."
        )
    yield from _of_run(found, fields)
    if found.first_differences.same_raw_other_id:
        yield (
            "The same draft ids became other target ids: the vocabulary map is read in two ways. "
            "spectrace diagnose says of each trace which."
        )
    if _has_other_states(found, fields):
        yield f"The drafts are fed other states: {_of_taps(found, fields)}"
    if found.first_differences.kinds["proposal"].differing:
        yield from _of_drafts(found, fields)


def _has_other_states(found: Comparison, fields: set[str]) -> bool:
    """The drafts are fed other hidden states."""
    return bool(fields & _LAYERS) or any(not match.is_same for match in found.taps)


def _of_run(found: Comparison, fields: set[str]) -> Iterator[str]:
    """The first step in which the draft was run otherwise; two engines may count in two ways."""
    kinds = [found.first_differences.kinds[name] for name in INPUTS]
    firsts = [kind.first for kind in kinds if kind.first is not None and kind.first.steps is not None]
    if _has_other_states(found, fields) or found.same_weights is False:  # what is fed back comes of these
        firsts = [first for first in firsts if first.kind != "fed_back"]
    if not firsts or "engine.name" in fields or "method" in fields:
        return
    first = min(firsts, key=lambda at: at.steps or (0, 0))
    a, b = first.steps or (0, 0)
    values = " | ".join(f"{label} {value}" for label, value in zip("AB", input_values(first)))
    what = f"{_NAMES[first.kind]} ({input_place(first)}) {values}"
    yield f"The drafts are run otherwise from step {a} of A, {b} of B on: {what}. {_LOOK[first.kind]}"


_NAMES = {"draft_positions": "position", "kv_lengths": "KV length", "fed_back": "RMS of the input"}
_LOOK = {
    "draft_positions": "Look at how the draft's positions are counted.",
    "kv_lengths": "Look at what is dropped from that cache after a rejection.",
    "fed_back": "The state fed back differs in length: look for a norm or scale that one run applies.",
}


def _of_drafts(found: Comparison, fields: set[str]) -> Iterator[str]:
    """Whether these are two drafts, or one in two states."""
    if 0 in found.acceptance.proposals:
        label = "AB"[found.acceptance.proposals.index(0)]
        same = "" if found.fork else ", and as far as both go the text is the same without drafting"
        yield f"{label} drafts nothing{same}."
    elif "method" in fields:
        yield "These are different drafts: other proposals are no fault."
    elif fields & _PRECISION:
        yield "The runs compute in other types: some other proposals are to be expected."
    elif found.same_weights is False:
        yield (
            "The drafts hold other weights: where they are meant to be one, spectrace check names what a "
            "checkpoint lacks."
        )
    elif "draft.id" in fields and not found.same_weights:
        yield "The drafts go by other names, and no fingerprint tells whether they are one."


def _of_taps(found: Comparison, fields: set[str]) -> str:
    if fields & _LAYERS or any(match.shift for match in found.taps):
        return (
            "compare the layers declared, their order, and whether an id counts inputs or outputs. "
            "spectrace diagnose says which trace is off."
        )
    if any(match.is_scaled for match in found.taps):
        return "look for a norm or a scale that one run applies. spectrace diagnose says which trace is off."
    return "compare layers, norms and precision. spectrace diagnose says which trace is off."


def _of_fork(fork: Fork) -> str:
    return {
        OFF_PICK: "A greedy run commits a token that its target did not pick: look at its verification rule "
        "and logits processors.",
        NO_TIE: "No rounding explains the texts: look at KV state, verification and processors with "
        "spectrace diagnose B --control A.",
        UNKNOWN: "Whether rounding explains the texts is not recorded: record target_gaps and target_top, "
        "and the sampling settings.",
        SAMPLED: "A run that samples may write another text: compare greedy runs where texts must agree.",
        TIE: "Rounding parts the texts, no fault: use float32 where equal text is needed.",
    }[fork.verdict]


def _of_proposals(found: Comparison) -> Iterator[str]:
    differences = found.first_differences
    proposals = differences.kinds["proposal"]
    if differences.other_shape:
        yield "One run drafts trees, the other chains: compare accept length, not the acceptance rate."
    elif not proposals.differing:
        if found.acceptance.is_shown and found.fork is None:
            yield "Acceptance differs though no proposal does: look at the steps that only one trace holds."
    elif proposals.differing == differences.only_length:
        yield (
            "The drafts agree as far as both propose, only the number of draft tokens differs: compare "
            "alpha1 and positions, not acceptance rate or accept length."
        )
    elif proposals.first is not None and proposals.first.steps is not None:
        a, b = proposals.first.steps
        where = f"The drafts part first at step {a} of A, {b} of B"
        if found.headers:
            yield f"{where}: change back one by one what the headers differ in."
        else:
            yield f"{where}: look there at positions, KV lengths and states fed back."
        if not found.taps:
            yield "Nothing tells what the drafts were fed: record taps in both."


def _nothing(found: Comparison) -> str:
    if found.is_equal:
        return "Nothing: what the traces hold is the same."
    return "Nothing that both traces hold differs; one of them holds more."
