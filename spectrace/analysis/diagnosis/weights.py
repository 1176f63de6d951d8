"""Were all of the draft's weights loaded, and in the precision they were stored in?

Heads and embeddings are judged by draft_head.py. People blame quantisation first and are often wrong:
without two runs of different precision it is neither accused nor cleared.
"""

from __future__ import annotations

from collections.abc import Iterator

from spectrace.analysis.diagnosis.draft_head import is_head_name
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength

_HARMLESS = ("inv_freq", "rotary", "position_ids", "d2t", "t2d", "masked_bias", "attn.bias", "mask_hidden")
"""Buffers that are computed or kept elsewhere."""
_LISTED = 16


def judge(facts: Facts) -> Iterator[Outcome]:
    """The loader's lists, then packed shapes."""
    yield from (blank := list(_blank(facts)))
    draft = facts.run.draft
    parameters = None if draft is None else draft.parameters
    if parameters is None or (parameters.missing is None and parameters.unexpected is None):
        if facts.run.method not in ("ngram", "suffix", "early_exit"):
            yield facts.not_recorded(
                "weights",
                "pass on the loader's lists of missing and unexpected parameter names",
                "draft.parameters",
            )
    else:
        missing, unexpected = _weights(parameters.missing), _weights(parameters.unexpected)
        if missing or unexpected:
            yield _not_loaded(missing, unexpected)
        elif parameters.missing is None:  # what is unexpected alone does not tell what is absent
            yield facts.not_recorded(
                "weights", "pass on the loader's list of missing parameter names", "draft.parameters.missing"
            )
        elif not blank:
            yield Cleared(id="weights", summary="every weight of the draft was loaded")
    yield from _packed(facts)


def _weights(names: object) -> list[str]:
    """Names of real weights that are no head."""
    found = names if isinstance(names, (list, tuple)) else ()
    return [n for n in found if not is_head_name(n) and not any(word in n for word in _HARMLESS)]


def _not_loaded(missing: list[str], unexpected: list[str]) -> Finding:
    which = (
        "that the model has and the checkpoint lacks"
        if missing
        else "that the checkpoint has and the model lacks"
    )
    names = missing or unexpected
    return Finding(
        id="weights/not-loaded",
        strength=Strength.CERTAIN,
        summary=f"{len(missing) + len(unexpected):,} weights of the draft were not loaded; the first "
        f"{which} is {names[0]}.",
        advice="Map the names of the checkpoint to those of the model; a draft without a layer still runs.",
        evidence={
            "num_missing": len(missing),
            "num_unexpected": len(unexpected),
            "missing": missing[:_LISTED],
            "unexpected": unexpected[:_LISTED],
        },
    )


def _blank(facts: Facts) -> Iterator[Finding]:
    """Weights that are zero throughout: allocated and never filled. No training leaves a matrix so."""
    prints = {} if facts.run.draft is None else facts.run.draft.fingerprints
    names = [
        name
        for name, found in prints.items()
        if found.rms == 0 and len(found.shape or ()) == 2 and "target" not in name and not is_head_name(name)
    ]
    if names:
        yield Finding(
            id="weights/not-loaded",
            strength=Strength.CERTAIN,
            summary=f"{len(names):,} weight matrices of the draft are zero throughout, the first is "
            f"{names[0]}: nothing was loaded into them.",
            advice="Compare the names in the checkpoint with those of the model; the loader kept silent.",
            evidence={"zero": names[:_LISTED]},
        )


def _packed(facts: Facts) -> Iterator[Finding]:
    """A tensor that the header calls unquantised has the shape of packed integers."""
    draft = facts.run.draft
    if draft is None or not draft.hidden_size or draft.quantization not in (None, "none"):
        return
    for name, found in draft.fingerprints.items():
        shape = list(found.shape or ())
        if (
            len(shape) == 2
            and is_head_name(name)
            and shape[1] in (draft.hidden_size // 2, draft.hidden_size // 8)
        ):
            yield Finding(
                id="weights/precision",
                strength=Strength.CERTAIN,
                summary=f"{name} has the shape of packed integers, but the draft was loaded as unquantised.",
                advice="Load the draft with the quantisation its checkpoint declares.",
                evidence={"shape": shape, "hidden_size": draft.hidden_size},
            )
            return
