"""What is wrong with a vocabulary map, or that nothing is. Rules K01."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.draft.facts import DraftFacts
from spectrace.analysis.draft.vocab_map import MapReport, digest_of, whole_numbers
from spectrace.checkpoint.records import VocabTable


def judge_map(
    report: MapReport | None,
    table: VocabTable | None,
    facts: DraftFacts,
    others: Sequence[VocabTable] | None,
    unreadable: str | None = None,
) -> Iterator[Outcome]:
    """Every answer about the map.

    Args:
        report: the map read both ways, where there is one.
        table: as it lies in the checkpoint.
        facts: of draft and target.
        others: maps of a training run or another checkpoint; None where nobody gave any.
        unreadable: why the weights, and so the map, could not be read.
    """
    if report is None:
        yield from _without_report(table, facts, unreadable)
        return
    yield from _of_meaning(report, facts)
    yield from _of_size(report, table, facts)
    yield from _of_others(report, others)


def _without_report(table: VocabTable | None, facts: DraftFacts, unreadable: str | None) -> Iterator[Outcome]:
    if unreadable is not None:
        yield NotChecked(id="vocab-map", reason=unreadable, missing=("d2t",))
    elif table is not None and table.d2t is not None:
        yield Finding(
            id="vocab-map/dtype",
            strength=Strength.CERTAIN,
            summary=f"d2t holds no whole numbers ({table.d2t.dtype}, {table.d2t.size:,} entries).",
            advice="Export the map again, as int64 offsets.",
            evidence={"dtype": str(table.d2t.dtype), "shape": list(table.d2t.shape)},
        )
    elif facts.is_reduced:
        yield Finding(
            id="vocab-map/missing",
            strength=Strength.CERTAIN,
            summary=f"The draft says {facts.draft_vocab:,} ids and the target {facts.target_vocab:,}, "
            "but the checkpoint holds no d2t.",
            advice="Export d2t with the weights: without it vLLM and SGLang silently take draft ids for "
            "target ids, and TensorRT-LLM reads memory that nobody wrote.",
            evidence={"draft_vocab": facts.draft_vocab, "target_vocab": facts.target_vocab},
        )
    elif facts.draft_vocab is not None and facts.draft_vocab == facts.target_vocab:
        yield Cleared(
            id="vocab-map", summary=f"draft and target both have {facts.draft_vocab:,} ids; no map needed"
        )
    else:
        yield NotChecked(
            id="vocab-map",
            reason="the sizes of the vocabularies are unknown; give the target with --target",
            missing=("target.vocab_size",),
        )


def _of_meaning(report: MapReport, facts: DraftFacts) -> Iterator[Outcome]:
    evidence = {"offset": report.offset.to_mapping(), "direct": report.direct.to_mapping()}
    if report.meaning == "offset":
        yield from _of_offsets(report, evidence)
    elif report.meaning == "identity":
        yield from _of_identity(report, facts)
    elif report.meaning == "either":
        yield NotChecked(id="vocab-map/absolute-table", reason=report.sentence, missing=("t2d",))
    elif report.meaning == "direct":
        yield _found(
            "absolute-table", report, "Write d2t[i] = target id - i, which all loaders expect.", evidence
        )
    elif report.meaning == "ramp":
        yield _found(
            "ramp-default", report, "Export the map of the training run; this one was never filled.", evidence
        )
    elif report.meaning == "hybrid":
        evidence["switch"] = {"index": report.switch}
        yield _found("hybrid", report, "Export the whole map again, as offsets.", evidence)
    else:
        yield from _of_neither(report, evidence)


def _of_offsets(report: MapReport, evidence: dict[str, Any]) -> Iterator[Outcome]:
    words = f"offsets give {report.offset.distinct:,} different ids of {report.length:,}"
    words += ", exactly t2d" if report.kept is not None else ", all in range" if report.target_vocab else ""
    for name in ("absolute-table", "ramp-default", "missing"):
        yield Cleared(id=f"vocab-map/{name}", summary=words, evidence=evidence)
    if report.target_vocab is not None:
        inside = f"all ids within 0..{report.target_vocab - 1:,}"
        yield Cleared(id="vocab-map/out-of-range", summary=inside)
    if not report.offset.is_increasing:
        yield Finding(
            id="vocab-map/stale",
            strength=Strength.HINT,
            summary="The ids of the map are all different and in range, but not in ascending order.",
            advice="Trained maps are built from a sorted list; compare with yours: --vocab-mapping DIR.",
            evidence={"increasing": False},
        )
    yield NotChecked(
        id="vocab-map/offset-read-as-direct",
        reason="a checkpoint cannot show whether an engine or a script adds the offsets; "
        "a trace with raw ids can (spectrace record)",
        missing=("draft_ids",),
    )


def _of_identity(report: MapReport, facts: DraftFacts) -> Iterator[Outcome]:
    is_full = facts.target_vocab == report.length
    marks_first = report.offset.equals_mask
    if is_full or marks_first:
        why = (
            "both vocabularies are equal" if is_full else f"t2d marks exactly the first {report.length:,} ids"
        )
        yield Cleared(id="vocab-map", summary=f"all offsets are 0 and {why}: an identity, as it should be")
        return
    known = report.kept is not None
    marked = (
        ""
        if report.kept is None
        else f", while t2d marks {report.kept:,} ids, not the first {report.length:,}"
    )
    yield Finding(
        id="vocab-map/missing",
        strength=Strength.CERTAIN if known else Strength.HINT,
        summary=f"All {report.length:,} offsets are 0{marked}: the map was never filled in."
        if known
        else f"All {report.length:,} offsets are 0 and there is no t2d: right only for a draft trained on "
        "the target's first ids.",
        advice="Export the map of the training run with the weights.",
        evidence={"entries": report.length, "kept": report.kept, "target_vocab": report.target_vocab},
    )


def _of_neither(report: MapReport, evidence: dict[str, Any]) -> Iterator[Outcome]:
    offset = report.offset
    if offset.out_of_range:
        low, high = int(offset.ids.min()), int(offset.ids.max())
        yield Finding(
            id="vocab-map/out-of-range",
            strength=Strength.CERTAIN,
            summary=f"{offset.out_of_range:,} of {report.length:,} ids lie outside the target's vocabulary"
            + ("" if report.target_vocab is None else f" of {report.target_vocab:,}")
            + f" ({low:,} to {high:,}).",
            advice="Check that this draft was made for this target, and that its map is whole.",
            evidence={**evidence, "lowest": low, "highest": high},
        )
    if offset.distinct < report.length:
        yield Finding(
            id="vocab-map/duplicates",
            strength=Strength.CERTAIN,
            summary=f"{report.length - offset.distinct:,} draft ids share their target id with another one.",
            advice="Export the map of the training run; a map names every target id once.",
            evidence=evidence,
        )
    elif offset.equals_mask is False and not offset.out_of_range:
        yield Finding(
            id="vocab-map/stale",
            strength=Strength.CERTAIN,
            summary="d2t and t2d do not belong together: "
            f"t2d marks {offset.in_mask:,} of the {report.length:,} ids.",
            advice="Export both from one training run, or compare with its folder: --vocab-mapping.",
            evidence=evidence,
        )


def _found(name: str, report: MapReport, advice: str, evidence: dict[str, Any]) -> Finding:
    return Finding(
        id=f"vocab-map/{name}",
        strength=Strength.STRONG if name == "hybrid" and report.kept is None else Strength.CERTAIN,
        summary=report.sentence,
        advice=advice,
        evidence=evidence,
    )


def _of_size(report: MapReport, table: VocabTable | None, facts: DraftFacts) -> Iterator[Outcome]:
    wanted = {
        "lm_head has {:,} rows": facts.head_rows,
        "config.json says {:,}": facts.config.integer("draft_vocab_size"),
    }
    wrong = [
        words.format(size) for words, size in wanted.items() if size is not None and size != report.length
    ]
    if wrong:
        yield Finding(
            id="vocab-map/length",
            strength=Strength.CERTAIN,
            summary=f"d2t has {report.length:,} entries, {' and '.join(wrong)}.",
            advice="Map and head must come from the same export.",
            evidence={"d2t": report.length, "head_rows": facts.head_rows},
        )
    elif facts.head_rows is not None:
        yield Cleared(id="vocab-map/length", summary=f"d2t and lm_head both have {report.length:,} rows")
    if report.dtype not in ("int64", "int32"):
        yield Finding(
            id="vocab-map/dtype",
            strength=Strength.STRONG,
            summary=f"d2t is stored as {report.dtype}; loaders expect int64 (TensorRT-LLM int32).",
            advice="Export it as int64: a smaller or a floating type cannot hold every offset.",
            evidence={"dtype": report.dtype},
        )
    d2t, t2d = (None, None) if table is None else (table.d2t, table.t2d)
    if d2t is not None and d2t.ndim != 1:
        yield Finding(
            id="vocab-map/dtype",
            strength=Strength.STRONG,
            summary=f"d2t has shape {list(d2t.shape)}; loaders expect one axis, an entry per draft id.",
            advice="Export it flat.",
            evidence={"shape": list(d2t.shape)},
        )
    if t2d is not None and report.kept is None:
        yield Finding(
            id="vocab-map/dtype",
            strength=Strength.STRONG,
            summary=f"t2d is no mask of zeros and ones ({t2d.dtype}); it was not used.",
            advice="Export it as bool, one entry per target id.",
            evidence={"dtype": str(t2d.dtype)},
        )
    elif t2d is not None and facts.target_vocab is not None and t2d.size != facts.target_vocab:
        yield Finding(
            id="vocab-map/length",
            strength=Strength.HINT,
            summary=f"t2d has {t2d.size:,} entries, the target {facts.target_vocab:,} ids.",
            advice="Harmless where the target only padded its vocabulary; else the map is of another target.",
            evidence={"t2d": int(t2d.size), "target_vocab": facts.target_vocab},
        )


def _of_others(report: MapReport, others: Sequence[VocabTable] | None) -> Iterator[Outcome]:
    """Against the maps of a training run or of another checkpoint."""
    if others is None:
        yield NotChecked(
            id="vocab-map/stale",
            reason="nothing to compare with; give the training run's folder: --vocab-mapping DIR",
            missing=("digest_expected",),
        )
        return
    differing: list[tuple[VocabTable, NDArray[np.int64]]] = []
    for other in others:
        found = None if other.d2t is None else whole_numbers(other.d2t)
        if found is None:
            continue
        if digest_of(found) == report.digest:
            yield Cleared(
                id="vocab-map/stale",
                summary=f"equal, entry by entry, to the map in {other.source}",
                evidence={"digest": report.digest},
            )
            return
        differing.append((other, found))
    if not differing:
        yield NotChecked(
            id="vocab-map/stale", reason="the folder holds no readable d2t", missing=("digest_expected",)
        )
        return
    yield _stale(report, *differing[0], len(differing))


def _stale(report: MapReport, other: VocabTable, found: NDArray[np.int64], count: int) -> Finding:
    own = report.offset.ids - np.arange(report.length)
    shared = min(own.size, found.size)
    differs = np.flatnonzero(own[:shared] != found[:shared])
    where = (
        f"{differs.size:,} of {shared:,} entries differ, the first at index {int(differs[0]):,} "
        f"({int(own[differs[0]]):,} here, {int(found[differs[0]]):,} there)"
        if differs.size
        else f"{report.length:,} entries here, {found.size:,} there"
    )
    more = "" if count == 1 else f", nor any of {count - 1:,} other maps there"
    return Finding(
        id="vocab-map/stale",
        strength=Strength.CERTAIN,
        summary=f"The map is not that of {other.source}{more}: {where}.",
        advice="Find out which of the two the weights were trained with, and export that one.",
        evidence={
            "digest": report.digest,
            "digest_expected": digest_of(found),
            "entries_differing": int(differs.size),
        },
    )
