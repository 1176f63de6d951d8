"""Is the map from draft to target ids right, and is it read as it was made?

Table first, then the ids of every step, then what acceptance would have been under the other reading. Zeros
at the beginning of a table of offsets are normal (the first ids are all kept) and never evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from spectrace.analysis.diagnosis.facts import SHARED_VOCABULARY, Facts
from spectrace.analysis.diagnosis.id_map import MapTally, Table
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.columns import Array


def judge(facts: Facts) -> Iterator[Outcome]:
    """Every fault of the map that the trace shows, or why there is none."""
    tally = facts.of(MapTally)
    table = Table(facts.run)
    found = [*_of_table(table), *_of_steps(table, tally), *_out_of_range(table, tally)]
    yield from _without_repeats(found)
    if not found:
        yield from _cleared(facts, table, tally)


def _without_repeats(found: list[Finding]) -> Iterator[Finding]:
    """One finding per id: the steps' before the table's, which says less."""
    by_id: dict[str, Finding] = {}
    for finding in found:
        earlier = by_id.get(finding.id)
        if earlier is None or (finding.steps and not earlier.steps):
            by_id[finding.id] = finding
    yield from by_id.values()


def _of_table(table: Table) -> Iterator[Finding]:
    given = table.map
    if given.digest and given.digest_expected and given.digest != given.digest_expected:
        yield Finding(
            id="vocab-map/stale",
            strength=Strength.CERTAIN,
            summary="The id map in use is not the one stored with the draft: their digests differ.",
            advice="Load the map from the same folder and revision as the draft's weights.",
            evidence={"digest": given.digest, "digest_expected": given.digest_expected},
        )
    if table.offset is None or table.direct is None or given.d2t is None:
        return
    evidence: dict[str, Any] = {
        "offset_reading": table.offset.to_mapping(),
        "direct_reading": table.direct.to_mapping(),
    }
    rows, size = table.head_rows, len(given.d2t)
    if rows is not None and rows != size and rows != table.vocab_size:
        yield Finding(
            id="vocab-map/stale",
            strength=Strength.CERTAIN,
            summary=f"The id map has {size:,} entries but the draft's head has {rows:,} rows.",
            advice="Use the map that was written together with this head.",
            evidence={"entries": size, "head_rows": rows},
        )
    if table.is_ramp:
        is_proven = table.offset.out_of_range > 0 or table.offset.equals_mask is False
        yield Finding(
            id="vocab-map/ramp-default",
            strength=Strength.CERTAIN if is_proven else Strength.STRONG,
            summary="d2t is 0, 1, 2, ...: a buffer's default that no table was loaded into.",
            advice="Load d2t from the draft's checkpoint; check that its name is in the file.",
            evidence=evidence,
        )
    elif table.is_absolute and given.applied != "direct":
        yield Finding(
            id="vocab-map/absolute-table",
            strength=Strength.CERTAIN,
            summary="d2t holds target ids, but engines read it as offsets: it was exported the wrong way.",
            advice="Subtract the draft id from every entry: d2t - arange(len(d2t)).",
            evidence=evidence,
        )
    elif table.offset.out_of_range:
        yield Finding(
            id="vocab-map/out-of-range",
            strength=Strength.CERTAIN,
            summary=f"{table.offset.out_of_range:,} entries of d2t lead outside the target's vocabulary.",
            advice="Use the map made for this target; compare the target's vocabulary size.",
            evidence={**evidence, "vocab_size": table.vocab_size},
        )
    elif table.offset.equals_mask is False or table.offset.distinct < size:
        yield Finding(
            id="vocab-map/stale",
            strength=Strength.CERTAIN,
            summary="d2t and t2d do not belong together: neither reading gives the ids that t2d marks."
            if table.offset.equals_mask is False
            else "d2t read as offsets names some target ids twice: the table is damaged or another's.",
            advice="Take both tables from the draft's own checkpoint.",
            evidence=evidence,
        )
    elif not table.offset.is_increasing:
        yield Finding(
            id="vocab-map/stale",
            strength=Strength.HINT,
            summary="The mapped ids are not in ascending order, as a map made from a sorted list would be.",
            advice="Compare the table's digest with the one in the training run's mapping folder.",
            evidence=evidence,
        )
    if given.applied == "direct" and table.offset.is_sound and table.offset.ids.tolist() != list(given.d2t):
        yield _read_as_direct(table, evidence, ())


def _read_as_direct(table: Table, evidence: dict[str, Any], steps: Any) -> Finding:
    return Finding(
        id="vocab-map/offset-read-as-direct",
        strength=Strength.CERTAIN,
        summary="d2t holds offsets, but its entries were used as target ids: draft id + d2t[draft id] is "
        "meant.",
        advice="Map ids by target_id = draft_id + d2t[draft_id].",
        evidence=evidence,
        steps=steps,
    )


def _of_steps(table: Table, tally: MapTally) -> Iterator[Finding]:
    if table.offset is None or table.direct is None:
        yield from _map_missing(table, tally)
        return
    if not tally.pairs:
        return
    evidence: dict[str, Any] = {
        "offset_reading": table.offset.to_mapping(),
        "direct_reading": table.direct.to_mapping()
        | {"wrong": int((table.direct.ids != table.offset.ids).sum())},
        "ids_mapped_by_offset": Share(tally.as_offset, tally.telling),
        "ids_mapped_directly": Share(tally.as_direct, tally.telling),
        **_hits(tally),
    }
    if tally.as_neither and tally.as_identity == tally.pairs:
        yield Finding(
            id="vocab-map/missing",
            strength=Strength.CERTAIN,
            summary="The map was not applied: draft ids went to the target as they were.",
            advice="Apply d2t to the draft's ids before they are verified.",
            evidence={"ids_unmapped": Share(tally.as_identity, tally.pairs), **_hits(tally)},
            steps=tally.identity_steps.steps,
        )
    # Any other table agrees with the direct reading here and there: the more frequent of the two counts.
    elif tally.as_direct > tally.as_neither and not table.is_absolute and not table.is_ramp:
        evidence["mapped_ids_outside_mask"] = sorted(tally.outside_mask)[:16]
        yield _read_as_direct(table, evidence, tally.direct_steps.steps)
    elif tally.as_neither and not table.is_absolute:
        yield Finding(
            id="vocab-map/stale",
            strength=Strength.CERTAIN,
            summary="Draft ids were mapped by another table than the recorded one.",
            advice="Find which file the engine loaded d2t from; it is not the one in the header.",
            evidence={"ids_by_neither_reading": Share(tally.as_neither, tally.pairs), **_hits(tally)},
            steps=tally.neither_steps.steps,
        )


def _map_missing(table: Table, tally: MapTally) -> Iterator[Finding]:
    given = table.map
    needs_map = given.source == "missing" or given.applied == "none"
    is_head = table.run.method not in SHARED_VOCABULARY and given.source != "tokenizers"
    if not table.is_reduced or (table.kept is not None and _is_prefix(table.kept)):
        return
    if not (needs_map or (is_head and tally.pairs and tally.as_identity == tally.pairs)):
        return
    yield Finding(
        id="vocab-map/missing",
        strength=Strength.CERTAIN,
        summary=f"The draft says {table.head_rows:,} ids and the target {table.vocab_size:,}, "
        "but there is no map between them.",
        advice="Load d2t with the draft; without it draft ids are taken for target ids.",
        evidence={
            "head_rows": table.head_rows,
            "vocab_size": table.vocab_size,
            "ids_unmapped": Share(tally.as_identity, tally.pairs),
        },
        steps=tally.identity_steps.steps,
    )


def _out_of_range(table: Table, tally: MapTally) -> Iterator[Finding]:
    if tally.range_steps:
        yield Finding(
            id="vocab-map/out-of-range",
            strength=Strength.CERTAIN,
            summary="Proposals hold ids that do not exist in the vocabulary they are meant for.",
            advice="Look at the first of these steps; placeholders such as -1 must not reach the target.",
            evidence={
                "mapped_ids_outside": tally.mapped_outside,
                "raw_ids_outside": tally.raw_outside,
                "vocab_size": table.vocab_size,
                "draft_vocab_size": table.draft_size,
                "steps_affected": tally.range_steps.count,
            },
            steps=tally.range_steps.steps,
        )


def _is_prefix(kept: Array) -> bool:
    return bool(np.array_equal(kept, np.arange(len(kept))))


def _hits(tally: MapTally) -> dict[str, Share]:
    if not tally.first:
        return {}
    return {
        "alpha1_as_recorded": tally.hit_share("recorded"),
        "alpha1_if_offset": tally.hit_share("offset"),
        "alpha1_if_direct": tally.hit_share("direct"),
    }


def _cleared(facts: Facts, table: Table, tally: MapTally) -> Iterator[Outcome]:
    if table.offset is not None:
        size = len(table.offset.ids)
        words = f"offset reading gives {table.offset.distinct:,} distinct ids of {size:,}"
        words += ", exactly t2d" if table.offset.equals_mask else ", all in range"
        evidence = {"offset_reading": table.offset.to_mapping(), **_hits(tally)}
        if tally.pairs:
            words += f"; all {tally.pairs:,} recorded ids follow it"
            yield Cleared(id="vocab-map", summary=words, evidence=evidence)
        else:
            yield Cleared(id="vocab-map/absolute-table", summary=words, evidence=evidence)
            yield facts.not_recorded(
                "vocab-map/offset-read-as-direct", "record the draft's raw ids before the map", "draft_ids"
            )
    elif table.map.applied == "identity" or table.run.method in SHARED_VOCABULARY:
        is_same = tally.pairs and tally.as_identity == tally.pairs
        words = (
            f"all {tally.pairs:,} ids are the same raw and mapped" if is_same else "one vocabulary, no map"
        )
        yield Cleared(
            id="vocab-map", summary=words, evidence={"ids_unmapped": Share(tally.as_identity, tally.pairs)}
        )
    elif table.head_rows and table.vocab_size and not table.is_reduced and tally.as_identity == tally.pairs:
        yield Cleared(id="vocab-map", summary=f"the draft has all {table.head_rows:,} ids; no map is needed")
    elif table.run.vocab_map is None and table.head_rows is None:
        yield facts.not_recorded(
            "vocab-map", "the recorder must read d2t from the draft", "vocab_map", "draft.head_rows"
        )
    else:
        yield NotChecked(
            id="vocab-map",
            reason="the header holds no d2t table and does not say that ids are shared",
            missing=("vocab_map.d2t",),
        )
