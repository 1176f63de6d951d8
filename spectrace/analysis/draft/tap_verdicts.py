"""What is wrong with the declared layers and with the width the draft takes. Rules K03, and K04 on width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.draft.facts import DraftFacts
from spectrace.analysis.draft.tap_table import UNKNOWN_LAYERS, TapRow
from spectrace.analysis.draft.taps import IDS, NESTED, config_has_bad_ids, declared


def judge_taps(facts: DraftFacts, rows: Sequence[TapRow]) -> Iterator[Outcome]:
    """Every answer about layers and widths."""
    if facts.kind == "model":
        yield Cleared(id="tap-layer", summary="a language model of its own, fed with no states of the target")
        return
    if facts.kind == "eagle":
        yield Cleared(id="tap-layer", summary="fed with the target's final state, not with chosen layers")
        return
    yield from _of_declaration(facts)
    yield from _out_of_range(facts, rows)
    yield from _of_engines(facts, rows)
    yield from _of_width(facts, rows)


def _of_declaration(facts: DraftFacts) -> Iterator[Outcome]:
    """Where the ids are declared, and whether the declaration contradicts itself."""
    bad = config_has_bad_ids(facts.raw)
    if bad is not None:
        yield NotChecked(id="tap-layer", reason=f"{bad} in config.json is no list of layer ids")
    top, nested = facts.raw.ids(IDS), facts.raw.ids(*NESTED)
    meant = declared(facts)
    if top and nested and top != tuple(layer + 1 for layer in nested):
        yield Finding(
            id="tap-layer/shifted",
            strength=Strength.STRONG,
            summary="config.json declares two lists that mean different layers: "
            f"{list(top)} at the top level (inputs) and {list(nested)} in eagle_config (outputs).",
            advice="Keep one, or make the list in eagle_config one smaller, id by id.",
            evidence={"top_level": list(top), "eagle_config": list(nested)},
        )
    if meant.is_default and bad is None and facts.kind == "eagle3":
        yield Finding(
            id="tap-layer/guessed",
            strength=Strength.HINT,
            summary="config.json declares no layer ids; every engine guesses B(2) B(n//2) B(n-3).",
            advice="Declare those of the training run: inputs at the top level, outputs in eagle_config.",
            evidence={"boundaries": meant.words},
        )
    yield from _looks_shifted(facts)


def _looks_shifted(facts: DraftFacts) -> Iterator[Outcome]:
    """A list that spells the usual layers in the numbering of the other place."""
    n = facts.target_layers
    if n is None or n < 8:
        return
    inputs, outputs = (2, n // 2, n - 3), (1, n // 2 - 1, n - 4)
    top, nested = facts.raw.ids(IDS), facts.raw.ids(*NESTED)
    for ids, other, where, shift in (
        (top, outputs, "top level, where ids are inputs of layers", -1),
        (nested, inputs, "eagle_config, where ids are outputs of layers", 1),
    ):
        if ids == other:
            yield Finding(
                id="tap-layer/shifted",
                strength=Strength.HINT,
                summary=f"{list(ids)} spells the usual layers in the other numbering: it stands in {where}, "
                f"and means one layer {'earlier' if shift < 0 else 'later'} there.",
                advice="Ask the training run which layers were tapped; a fingerprint in a trace tells too.",
                evidence={"ids": list(ids), "shift": shift},
            )


def _out_of_range(facts: DraftFacts, rows: Sequence[TapRow]) -> Iterator[Outcome]:
    n = facts.target_layers
    meant = declared(facts).boundaries
    if n is None:
        yield NotChecked(
            id="tap-layer/out-of-range",
            reason="the target's number of layers is unknown; give it with --target",
            missing=("target.num_layers",),
        )
        return
    wrong = [k for k in meant or () if not 0 <= k <= n]
    if wrong:
        yield Finding(
            id="tap-layer/out-of-range",
            strength=Strength.CERTAIN,
            summary=f"The declared layers mean boundary B({wrong[0]}), "
            f"but the target has {n} layers: B(0) to B({n}).",
            advice="Check that this draft was made for this target, and in which numbering its ids are.",
            evidence={"boundaries": list(meant or ()), "target_layers": n},
        )
        return
    lost = [row for row in rows if row.choice.note.startswith("never captures") and row.engine.serves]
    for row in lost:
        yield Finding(
            id="tap-layer/out-of-range",
            strength=Strength.HINT,
            summary=f"With {row.engine.label}: it {row.choice.note} of this target, one tap too few.",
            advice="Serve with another engine, or train without the last layer.",
            evidence={"engine": row.engine.name, "boundaries": list(meant or ())},
        )
    if meant and not lost:
        yield Cleared(
            id="tap-layer/out-of-range", summary=f"all declared boundaries lie within B(0) to B({n})"
        )


def _of_engines(facts: DraftFacts, rows: Sequence[TapRow]) -> Iterator[Outcome]:
    """One finding per way in which serving engines leave the declaration."""
    meant = declared(facts)
    by_way: dict[tuple[str, str], list[TapRow]] = {}
    for row in rows:
        if row.differs and row.engine.serves and not row.choice.note:
            by_way.setdefault((row.choice.words, row.differs), []).append(row)
    for (words, differs), group in by_way.items():
        name = "tap-form/order" if differs == "other order" else "tap-layer/shifted"
        if all(row.choice.is_default for row in group):
            name = "tap-layer/guessed"
        places = ", ".join(f"{row.engine.label} ({row.choice.origin})" for row in group)
        yield Finding(
            id=name,
            strength=Strength.HINT,
            summary=f"With {places}: feeds {words}, {differs}; declared is {meant.words}.",
            advice="Give --target: the number of layers is unknown, so these may be the declared ones."
            if differs == UNKNOWN_LAYERS
            else "Serve with an engine whose row in the table is unmarked, or pass the layers by hand.",
            evidence={
                "engines": [row.engine.name for row in group],
                "declared": meant.words,
                "fed": words,
                "shift": group[0].shift,
            },
        )
    if not by_way and not meant.is_default:
        yield Cleared(
            id="tap-layer/guessed",
            summary=f"declared ({meant.origin}), and every serving engine feeds {meant.words}",
            evidence={"boundaries": meant.words},
        )


def _of_width(facts: DraftFacts, rows: Sequence[TapRow]) -> Iterator[Outcome]:
    """Columns of fc against hidden size of the target times number of taps."""
    shape = facts.shape("fc.weight")
    own = facts.config.integer("target_hidden_size")
    real = facts.target.integer("hidden_size")
    if own is not None and real is not None and own != real:
        yield Finding(
            id="tap-form/width",
            strength=Strength.CERTAIN,
            summary=f"config.json says the target is {own:,} wide; this target is {real:,} wide.",
            advice="Check that this draft was made for this target.",
            evidence={"target_hidden_size": own, "hidden_size": real},
        )
        return
    if shape is None or len(shape) != 2 or facts.target_hidden is None:
        yield NotChecked(id="tap-form/width", reason="fc.weight or the target's hidden size is unknown")
        return
    meant = declared(facts)
    count = 3 if meant.boundaries is None else len(meant.boundaries)
    wanted = (facts.hidden, facts.target_hidden * count)
    if shape[1] != wanted[1] or (facts.hidden is not None and shape[0] != facts.hidden):
        yield Finding(
            id="tap-form/width",
            strength=Strength.CERTAIN,
            summary=f"fc.weight is {list(shape)}; {count} taps of a target {facts.target_hidden:,} wide need "
            f"[{'?' if wanted[0] is None else wanted[0]}, {wanted[1]}].",
            advice="Check the target and the number of declared layers.",
            evidence={"fc": list(shape), "taps": count, "target_hidden": facts.target_hidden},
        )
        return
    yield Cleared(
        id="tap-form/width",
        summary=f"fc takes {count} taps of {facts.target_hidden:,}: {shape[1]:,} columns",
        evidence={"fc": list(shape)},
    )
