"""Are the draft's hidden states tapped at the layers it was trained with?

The header's own arithmetic first (declared ids, their numbering, the boundaries captured), then
fingerprints against every boundary of a reference forward. A best cosine below .99 everywhere is a matter
of form, not of layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.fingerprints import TapTally
from spectrace.analysis.diagnosis.reference import TapComparison, compare_taps, declared_boundaries
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength

SAME = 0.99
"""Cosine of fingerprints from which two states are taken for the same."""


def judge(facts: Facts) -> Iterator[Outcome]:
    """Range, origin, arithmetic of the header, fingerprints."""
    taps, target = facts.run.taps, facts.run.target
    if facts.shares_vocabulary and not facts.references:
        yield Cleared(id="tap-layer", summary="the draft is fed no hidden states")
        return
    if taps is None and not facts.of(TapTally).rows:
        yield facts.not_recorded(
            "tap-layer",
            "fingerprint the states that the draft is fed, and one reference forward",
            "taps",
            "reference",
        )
        return
    yield from _out_of_range(facts, None if target is None else target.num_layers)
    if taps is not None and taps.origin == "guess":
        yield Finding(
            id="tap-layer/guessed",
            strength=Strength.STRONG,
            summary="The engine guessed which layers the draft is fed with: its config does not say.",
            advice="Write the layer ids of the training config into the draft's config.",
            evidence={"declared": list(taps.declared or ()), "boundaries": list(taps.boundaries or ())},
        )
    compared = compare_taps(facts)
    header = _header_shift(facts)
    if header is not None:
        yield header
    elif compared is None:
        yield facts.not_recorded(
            "tap-layer/shifted",
            "fingerprint taps and one reference forward over the prompt",
            "taps.projections",
            "reference",
        )
    else:
        yield from _shifted(facts, compared)


def _out_of_range(facts: Facts, num_layers: int | None) -> Iterator[Finding]:
    taps = facts.run.taps
    if taps is None:
        return
    last = None if num_layers is None else num_layers - (taps.numbering == "output")
    wrong = [i for i in taps.declared or () if i < 0 or (last is not None and i > last)]
    wrong += [k for k in taps.boundaries or () if k < 0 or (num_layers is not None and k > num_layers)]
    if wrong:
        yield Finding(
            id="tap-layer/out-of-range",
            strength=Strength.CERTAIN,
            summary="The draft asks for layers that the target does not have: "
            f"{', '.join(map(str, wrong[:4]))}.",
            advice="Use the draft with the target it was trained for; mind whether ids count inputs or "
            "outputs.",
            evidence={"out_of_range": wrong[:16], "num_layers": num_layers},
        )


def _header_shift(facts: Facts) -> Finding | None:
    """Declared ids and captured boundaries that differ by the header's own word."""
    taps = facts.run.taps
    if taps is None or taps.boundaries is None or taps.declared is None or taps.numbering is None:
        return None
    wanted, captured = declared_boundaries(facts.run) or [], list(taps.boundaries)
    if len(wanted) != len(captured) or sorted(wanted) == sorted(captured):
        return None
    places = [", ".join(f"B({k})" for k in boundaries) for boundaries in (wanted, captured)]
    summary = (
        f"The declared ids ({', '.join(map(str, taps.declared))}) count layer {taps.numbering}s and mean "
        f"{places[0]}, but {places[1]} were captured"
    )
    evidence = {"declared_ids": list(taps.declared), "they_count": f"layer {taps.numbering}s"}
    return _finding(summary, wanted, captured, {**evidence, "boundaries_captured": captured}, ())


def _shifted(facts: Facts, compared: TapComparison) -> Iterator[Outcome]:
    best, declared = compared.best, compared.declared
    evidence = {
        "boundaries_nearest": best,
        "cosine_at_nearest": [round(c, 4) for c in compared.best_cosine],
        "cosine_at_meant": [None if c is None else round(c, 4) for c in compared.declared_cosine],
        "rows_compared": compared.num_rows,
    }
    at_declared = [cosine for cosine in compared.declared_cosine if cosine is not None]
    if len(at_declared) < len(declared):
        yield NotChecked(
            id="tap-layer/shifted",
            reason="the reference lacks a declared boundary",
            how="run the reference forward over all layers",
            missing=("reference",),
        )
    elif min(compared.best_cosine) < SAME:
        yield NotChecked(
            id="tap-layer/shifted",
            reason=f"no boundary matches (best cosine {min(compared.best_cosine):.2f}): the form differs "
            "first",
        )
    elif all(
        b == d or not is_farther(c, e)
        for b, d, c, e in zip(best, declared, at_declared, compared.best_cosine)
    ):
        yield Cleared(
            id="tap-layer",
            summary=f"each tap matches its boundary, cosine at least {min(at_declared):.3f}",
            evidence=evidence,
        )
    elif sorted(best) == sorted(declared):
        yield Cleared(id="tap-layer", summary="the right boundaries, in another order", evidence=evidence)
    else:
        steps = [step for match in compared.matches for step in match.steps[:1]]
        summary = (
            f"The draft is fed the states behind {', '.join(map(str, best))} layers of the target instead of "
            f"{', '.join(map(str, declared))}"
        )
        yield _finding(summary, declared, best, {**evidence, "alpha1": facts.sample.alpha1}, steps)


def is_farther(at_declared: float, at_best: float) -> bool:
    """Neighbouring boundaries of a deep model resemble each other by .99: the distance decides."""
    return 1 - at_declared > 4 * (1 - at_best) + 1e-6


def _move(shift: int | None) -> str:
    """What to do with the layer ids so that the declared boundaries are captured."""
    if shift is None:
        return "Pass the layer ids in the engine's own numbering: some count layer inputs, some outputs."
    way = "Lower" if shift > 0 else "Raise"
    return (
        f"{way} the layer ids given to the engine by {abs(shift)}, or pass them in its own numbering: some "
        "count layer inputs, some outputs."
    )


def _finding(
    summary: str,
    meant: Sequence[int],
    fed: Sequence[int],
    evidence: dict[str, object],
    steps: Sequence[int],
) -> Finding:
    shifts = [b - d for b, d in zip(fed, meant)]
    is_constant = len(set(shifts)) == 1
    shift = shifts[0] if is_constant else None
    words = f"all by {shift:+d}" if is_constant else f"by {', '.join(f'{s:+d}' for s in shifts)}"
    return Finding(
        id="tap-layer/shifted",
        strength=Strength.CERTAIN,
        summary=f"{summary}: shifted {words}.",
        advice=_move(shift),
        evidence={
            **({"shifts": shifts} if shift is None else {"shift": shift}),
            "boundaries_meant": list(meant),
            **evidence,
        },
        steps=sorted(set(steps))[:5],
    )
