"""The visible list of rules, in the order in which they are asked.

A rule is a pure function over `Facts`; the classes beside it are the tallies it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from spectrace.analysis.diagnosis import (
    association,
    batch,
    calibration,
    confidence,
    contradictions,
    cost,
    counting,
    decode_states,
    draft_head,
    drift,
    feedback,
    fingerprints,
    id_map,
    kv_prefix,
    kv_replay,
    kv_state,
    metrics,
    nonfinite,
    output_law,
    positions,
    processors,
    ranks,
    reporting,
    slope,
    tap_form,
    tap_layer,
    tap_rows,
    tokenizer,
    training_gap,
    tree,
    unverified,
    verification,
    vocab_map,
    weights,
    window,
    workload,
)
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.verdict import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of cause."""

    id: str
    """First part of its findings' ids."""
    judge: Callable[[Facts], Iterable[Outcome]]
    tallies: tuple[type, ...] = ()
    is_statistical: bool = False
    """It compares rates, and says nothing where values are no numbers."""
    after_structural: bool = False
    """It may only be named where no structural rule found a fault."""


RULES: tuple[Rule, ...] = (
    Rule(id="nonfinite", judge=nonfinite.judge, tallies=(nonfinite.NonfiniteTally,)),
    Rule(id="vocab-map", judge=vocab_map.judge, tallies=(id_map.MapTally,)),
    Rule(id="tokenizer", judge=tokenizer.judge, tallies=(tokenizer.IdTally,)),
    Rule(id="draft-head", judge=draft_head.judge, tallies=(draft_head.HeadTally,)),
    Rule(id="draft-head", judge=ranks.judge, tallies=(ranks.RankTally,)),
    Rule(id="weights", judge=weights.judge),
    Rule(id="tap-layer", judge=tap_layer.judge, tallies=(fingerprints.TapTally,)),
    Rule(id="tap-form", judge=tap_rows.judge),
    Rule(id="tap-form", judge=tap_form.judge),
    Rule(id="tap-form", judge=feedback.judge, tallies=(feedback.FeedbackTally,)),
    Rule(id="positions", judge=positions.judge, tallies=(positions.PositionTally,)),
    Rule(id="window", judge=window.judge_gate, tallies=(window.LengthTally,)),
    Rule(id="kv-state", judge=kv_state.judge, tallies=(kv_state.StateTally,)),
    Rule(id="kv-state", judge=kv_replay.judge, tallies=(kv_replay.ReplayTally,)),
    Rule(id="kv-state", judge=kv_prefix.judge, tallies=(kv_prefix.PrefixTally,)),
    Rule(id="kv-state", judge=decode_states.judge),
    Rule(id="tree", judge=tree.judge, tallies=(tree.TreeTally,)),
    Rule(
        id="verification",
        judge=verification.judge,
        tallies=(verification.VerifierTally, output_law.LawTally, calibration.CalibrationTally),
    ),
    Rule(id="verification", judge=unverified.judge, tallies=(unverified.UnverifiedTally,)),
    Rule(id="verification", judge=confidence.judge, tallies=(confidence.ConfidenceTally,)),
    Rule(id="processors", judge=processors.judge, tallies=(processors.ProcessorTally,)),
    Rule(id="reporting", judge=reporting.judge, tallies=(reporting.ReportTally,)),
    Rule(id="metrics", judge=metrics.judge, tallies=(metrics.CountTally,)),
    Rule(id="metrics", judge=counting.judge, tallies=(counting.ReportedTally,)),
    Rule(id="cost", judge=cost.judge, tallies=(cost.TimeTally,)),
    Rule(
        id="vocab-map",
        judge=association.judge,
        tallies=(association.AssociationTally,),
        is_statistical=True,
        after_structural=True,
    ),
    Rule(
        id="batch", judge=batch.judge, tallies=(batch.RowTally,), is_statistical=True, after_structural=True
    ),
    Rule(id="window", judge=window.judge_length, is_statistical=True, after_structural=True),
    Rule(
        id="positions",
        judge=slope.judge,
        tallies=(slope.SlopeTally,),
        is_statistical=True,
        after_structural=True,
    ),
    Rule(id="tap-form", judge=training_gap.judge, is_statistical=True, after_structural=True),
    Rule(id="drift", judge=drift.judge, tallies=(drift.UptimeTally,), is_statistical=True),
    Rule(
        id="workload",
        judge=workload.judge,
        tallies=(workload.TextTally,),
        is_statistical=True,
        after_structural=True,
    ),
    Rule(id="trace", judge=contradictions.judge, tallies=(contradictions.ContradictionTally,)),
    Rule(id="workload", judge=workload.judge_size),
)
"""Every rule. A structural contradiction stands before statistics, the engine before the text."""
