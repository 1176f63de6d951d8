"""What is missing, left over or of the wrong shape among a draft's weights.

Rules K02 and K05, as far as files can tell. Names are canonical: ``layers.0`` for ``midlayer``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.draft.facts import DraftFacts, canonical
from spectrace.analysis.draft.loading import LoadRow
from spectrace.analysis.draft.parts import missing_modules
from spectrace.analysis.draft.tensor_values import judge_precision, judge_values, listed
from spectrace.checkpoint.records import Checkpoint
from spectrace.format.figures import count_of

_PLAIN = ("F64", "F32", "F16", "BF16")


def judge_weights(facts: DraftFacts, draft: Checkpoint, rows: Sequence[LoadRow]) -> Iterator[Outcome]:
    """Every answer about weights."""
    unreadable = not draft.tensors
    if unreadable:
        yield NotChecked(id="weights", reason=_why_unread(draft), missing=("weights",))
        return
    yield from _of_index(draft)
    if facts.kind == "eagle3":
        yield from _of_modules(facts, draft)
        yield from _of_head(facts, draft)
        yield from _of_engines(rows)
        yield from _of_shapes(facts)
    else:
        reason = "which weights this kind of draft needs is not known here"
        yield NotChecked(id="weights/not-loaded", reason=reason)
    yield from judge_precision(facts, draft)
    yield from judge_values(draft.values)


def _why_unread(draft: Checkpoint) -> str:
    if draft.faults:
        return f"no tensor could be read: {draft.faults[0].what}"
    return "the directory holds no weights"


def _of_index(draft: Checkpoint) -> Iterator[Outcome]:
    if draft.missing:
        yield Finding(
            id="weights/not-loaded",
            strength=Strength.CERTAIN,
            summary=f"The index promises {count_of(len(draft.missing), 'tensor')} that no file holds, "
            f"such as {listed(draft.missing)}.",
            advice="Copy or download the checkpoint again; a shard is missing or cut.",
            evidence={"missing": list(draft.missing[:20]), "count": len(draft.missing)},
        )


def _of_modules(facts: DraftFacts, draft: Checkpoint) -> Iterator[Outcome]:
    missing = missing_modules(facts)
    if not missing:
        yield Cleared(
            id="weights/not-loaded",
            summary=f"fc, norm and all parts of {count_of(facts.num_layers, 'layer')} are there, "
            f"{count_of(len(draft.tensors), 'tensor')}",
        )
        return
    damaged = {fault.tensor for fault in draft.faults if fault.tensor}
    why = " (the files are damaged, see above)" if damaged else ""
    layer = [module for module in missing if module.startswith("layers.")]
    whole = not facts.has("layers")
    if layer and whole:
        summary = (
            "The draft's transformer layer is missing: no tensor is called midlayer.* or layers.0.*"
            f"{why}. On a random layer it proposes nothing that is accepted."
        )
    else:
        summary = f"Missing from the draft: {listed(missing)}{why}."
    yield Finding(
        id="weights/not-loaded",
        strength=Strength.CERTAIN,
        summary=summary,
        advice="Export the checkpoint again; EAGLE, SGLang and vLLM run on without a word.",
        evidence={"missing": list(missing[:40]), "count": len(missing)},
    )


def _of_head(facts: DraftFacts, draft: Checkpoint) -> Iterator[Outcome]:
    """K02: the LM head against the draft's vocabulary."""
    declared = facts.config.integer("draft_vocab_size")
    if not facts.has("lm_head"):
        if facts.is_reduced:
            yield Finding(
                id="draft-head/not-loaded",
                strength=Strength.CERTAIN,
                summary=f"There is no lm_head, and the target's {facts.target_vocab:,} rows do not fit the "
                f"draft's {facts.draft_vocab:,} ids.",
                advice="Export lm_head with the draft.",
                evidence={"draft_vocab": facts.draft_vocab, "target_vocab": facts.target_vocab},
            )
        else:
            yield Cleared(
                id="draft-head/not-loaded", summary="no lm_head of its own; the target's has as many rows"
            )
        return
    values = draft.values.get(_raw_name(draft, "lm_head.weight") or "")
    if values is not None and values.is_zero and not values.is_sample:
        yield Finding(
            id="draft-head/not-loaded",
            strength=Strength.CERTAIN,
            summary="Every value of lm_head is zero: it was never set.",
            advice="Export the checkpoint again, after training.",
            evidence={"bytes_read": values.bytes_read},
        )
    if facts.head_rows is not None and declared is not None and facts.head_rows != declared:
        is_target = facts.head_rows == facts.target_vocab
        yield Finding(
            id="draft-head/overwritten",
            strength=Strength.CERTAIN,
            summary=f"lm_head has {facts.head_rows:,} rows, config.json says {declared:,} draft ids"
            f"{': it is as large as the head of the target' if is_target else ''}.",
            advice="Export the draft's own head.",
            evidence={"head_rows": facts.head_rows, "draft_vocab_size": declared},
        )
    elif facts.head_rows is not None:
        yield Cleared(
            id="draft-head/overwritten", summary=f"lm_head has {facts.head_rows:,} rows, one per draft id"
        )


def _of_engines(rows: Sequence[LoadRow]) -> Iterator[Outcome]:
    """What serving engines would skip or stop at."""
    quiet = []
    for row in rows:
        engine = row.rule.engine
        if not engine.serves:
            continue
        if row.skipped:
            yield Finding(
                id="weights/not-loaded",
                strength=Strength.HINT,
                summary=f"With {engine.label}: it silently skips {count_of(len(row.skipped), 'tensor')}: "
                f"{listed(row.skipped)}.",
                advice="Rename them as this engine expects, or switch on what they belong to in config.json.",
                evidence={
                    "engine": engine.name,
                    "skipped": list(row.skipped[:40]),
                    "count": len(row.skipped),
                },
            )
        if row.refused:
            yield Finding(
                id="weights/unexpected",
                strength=Strength.HINT,
                summary=f"With {engine.label}: it stops at {count_of(len(row.refused), 'tensor')} it does "
                f"not know: {listed(row.refused)}.",
                advice="Rename or drop them, or switch on what they belong to in config.json.",
                evidence={
                    "engine": engine.name,
                    "refused": list(row.refused[:40]),
                    "count": len(row.refused),
                },
            )
        if not row.skipped and not row.refused and row.unknown_class is None:
            quiet.append(engine.name)
    if quiet:
        yield Cleared(
            id="weights/unexpected", summary=f"{', '.join(quiet)} use every tensor, or skip it on purpose"
        )


def _of_shapes(facts: DraftFacts) -> Iterator[Outcome]:
    """Shapes of plain weights against the configuration; quantized ones are packed and left alone."""
    hidden = facts.hidden
    if hidden is None:
        yield NotChecked(
            id="weights/shape", reason="config.json gives no hidden_size", missing=("hidden_size",)
        )
        return
    wrong = []
    for name, wanted in _wanted_shapes(facts, hidden).items():
        shape = facts.shape(name)
        if shape is None or facts.tensors[name].dtype not in _PLAIN:
            continue
        if len(shape) != len(wanted) or any(
            size is not None and size != have for size, have in zip(wanted, shape)
        ):
            needed = ", ".join("any" if size is None else str(size) for size in wanted)
            wrong.append(f"{name} is {list(shape)}, expected [{needed}]")
    if wrong:
        yield Finding(
            id="weights/shape",
            strength=Strength.CERTAIN,
            summary=f"{count_of(len(wrong), 'weight')} of the wrong shape: "
            f"{'; '.join(wrong[:2])}{'; …' if len(wrong) > 2 else ''}.",
            advice="config.json and weights come from different models.",
            evidence={"wrong": wrong[:20], "count": len(wrong)},
        )
    else:
        yield Cleared(id="weights/shape", summary="every shape fits config.json")


def _wanted_shapes(facts: DraftFacts, hidden: int) -> Mapping[str, tuple[int | None, ...]]:
    heads, config = facts.config.integer("num_attention_heads"), facts.config
    head = config.integer("head_dim") or (hidden // heads if heads else None)
    groups = config.integer("num_key_value_heads") or heads
    queries = heads * head if heads and head else None
    keys = groups * head if groups and head else None
    inner = config.integer("intermediate_size")
    wanted: dict[str, tuple[int | None, ...]] = {"norm.weight": (hidden,)}
    wanted["fc.weight"] = (hidden, None)
    wanted["lm_head.weight"] = (None, hidden)
    wanted["embed_tokens.weight"] = (None, hidden)
    for layer in range(facts.num_layers):
        own = f"layers.{layer}."
        width = 2 * hidden if layer == 0 else hidden
        wanted |= {own + f"self_attn.{kind}_proj.weight": (keys, width) for kind in "kv"}
        wanted |= {own + f"mlp.{kind}_proj.weight": (inner, hidden) for kind in ("gate", "up")}
        wanted[own + "self_attn.q_proj.weight"] = (queries, width)
        wanted[own + "self_attn.o_proj.weight"] = (hidden, queries)
        wanted[own + "mlp.down_proj.weight"] = (hidden, inner)
        norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        wanted |= {f"{own}{norm}.weight": (hidden,) for norm in norms}
    return wanted


def _raw_name(draft: Checkpoint, wanted: str) -> str | None:
    """A tensor as the files call it."""
    return next((name for name in draft.tensors if canonical(name) == wanted), None)
