"""The whole check of a draft checkpoint: every answer, and the tables behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.draft.facts import DraftFacts, gather
from spectrace.analysis.draft.flags import FlagRow, flag_rows, judge_flags
from spectrace.analysis.draft.loading import LoadRow, load_rows
from spectrace.analysis.draft.map_verdicts import judge_map
from spectrace.analysis.draft.rotary import RotaryRow, judge_rotary, rotary_rows
from spectrace.analysis.draft.tap_table import TapRow, tap_rows
from spectrace.analysis.draft.tap_verdicts import judge_taps
from spectrace.analysis.draft.taps import Choice, declared
from spectrace.analysis.draft.tokens import (
    Coverage,
    TokenizerFacts,
    coverage,
    judge_tokens,
    tokenizer_facts,
)
from spectrace.analysis.draft.vocab_map import MapReport, read_map
from spectrace.analysis.draft.weights import judge_weights
from spectrace.checkpoint.records import Checkpoint, VocabTable

_ORDER = {Strength.CERTAIN: 0, Strength.STRONG: 1, Strength.HINT: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check found, and the tables behind it."""

    facts: DraftFacts
    findings: Sequence[Finding]
    """Certain ones first."""
    cleared: Sequence[Cleared]
    not_checked: Sequence[NotChecked]
    map: MapReport | None
    coverage: Coverage | None
    declared_taps: Choice
    taps: Sequence[TapRow]
    flags: Sequence[FlagRow]
    loading: Sequence[LoadRow]
    rotary: Sequence[RotaryRow]
    draft_tokenizer: TokenizerFacts | None
    target_tokenizer: TokenizerFacts | None

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "findings": [item.to_mapping() for item in self.findings],
            "cleared": [item.to_mapping() for item in self.cleared],
            "not_checked": [item.to_mapping() for item in self.not_checked],
            "draft": _sizes(self.facts),
            "map": None if self.map is None else self.map.to_mapping(),
            "coverage": None if self.coverage is None else self.coverage.to_mapping(),
            "taps": {
                "declared": {"origin": self.declared_taps.origin, "words": self.declared_taps.words},
                "engines": [row.to_mapping() for row in self.taps],
            },
            "flags": [row.to_mapping() for row in self.flags],
            "loading": [row.to_mapping() for row in self.loading],
            "rotary": [row.to_mapping() for row in self.rotary],
            "tokenizers": {
                "draft": None if self.draft_tokenizer is None else self.draft_tokenizer.to_mapping(),
                "target": None if self.target_tokenizer is None else self.target_tokenizer.to_mapping(),
            },
        }


def check_draft(
    draft: Checkpoint,
    target: Checkpoint | None = None,
    others: Sequence[VocabTable] | None = None,
    frequencies: Mapping[int, int] | None = None,
) -> CheckReport:
    """Judges a draft checkpoint.

    Args:
        draft: read with its values.
        target: the model it drafts for.
        others: maps to compare its own with; None where nobody gave any.
        frequencies: target id -> occurrences, to weigh the coverage with.
    """
    facts = gather(draft, target)
    report = None if draft.table is None else read_map(draft.table, facts)
    taps, flags = tap_rows(facts), flag_rows(facts)
    loading = load_rows(facts, tuple(draft.tensors)) if facts.kind == "eagle3" else ()
    rotary = rotary_rows(facts)
    tokenizer = (target.tokenizer if target is not None else None) or draft.tokenizer
    outcomes = [
        *judge_map(report, draft.table, facts, others, _why_no_map(draft)),
        *judge_weights(facts, draft, loading),
        *judge_taps(facts, taps),
        *judge_flags(facts, flags),
        *judge_rotary(facts, rotary),
        *judge_tokens(draft, target, facts),
    ]
    return CheckReport(
        facts=facts,
        findings=sorted(_of(outcomes, Finding), key=lambda item: _ORDER[item.strength]),
        cleared=list(_of(outcomes, Cleared)),
        not_checked=list(_of(outcomes, NotChecked)),
        map=report,
        coverage=coverage(report, facts, tokenizer, frequencies),
        declared_taps=declared(facts),
        taps=taps,
        flags=flags,
        loading=loading,
        rotary=rotary,
        draft_tokenizer=tokenizer_facts(draft),
        target_tokenizer=tokenizer_facts(target),
    )


def _why_no_map(draft: Checkpoint) -> str | None:
    """Why a map that may be there could not be read; None where it was read or is really missing."""
    if draft.table is not None and draft.table.d2t is not None:
        return None
    at_fault = [fault for fault in draft.faults if fault.tensor is None or fault.tensor.endswith("d2t")]
    if any(fault.tensor for fault in at_fault):
        return f"d2t is there and could not be read: {next(f.what for f in at_fault if f.tensor)}"
    if not draft.tensors:
        return at_fault[0].what if at_fault else "the directory holds no weights that can be read"
    return None


def _of(outcomes: Sequence[Outcome], kind: type[Any]) -> Iterator[Any]:
    return (item for item in outcomes if isinstance(item, kind))


def _sizes(facts: DraftFacts) -> dict[str, Any]:
    return {
        "kind": facts.kind,
        "style": facts.style,
        "architecture": facts.architecture,
        "draft_vocab": facts.draft_vocab,
        "target_vocab": facts.target_vocab,
        "head_rows": facts.head_rows,
        "hidden": facts.hidden,
        "target_hidden": facts.target_hidden,
        "target_layers": facts.target_layers,
        "num_layers": facts.num_layers,
        "num_taps": facts.num_taps,
        "tensors": len(facts.tensors),
    }
