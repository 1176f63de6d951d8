"""The boundaries of all engines side by side, and how each leaves what the configuration declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spectrace.analysis.draft.engines import Engine
from spectrace.analysis.draft.facts import DraftFacts
from spectrace.analysis.draft.taps import RULES, Choice, declared, sorted_ids
from spectrace.format.figures import count_of

UNKNOWN_LAYERS = "n is unknown"
"""Whether an engine's layers are those declared is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TapRow:
    """One line of the table."""

    engine: Engine
    source: str
    choice: Choice
    differs: str
    """How it differs from what the configuration declares; empty where it does not."""
    shift: int | None
    """Boundaries that every tap is off by; None where they differ in another way."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "engine": self.engine.name,
            "version": self.engine.version,
            "source": self.source,
            "origin": self.choice.origin,
            "boundaries": None if self.choice.boundaries is None else list(self.choice.boundaries),
            "words": self.choice.words,
            "differs": self.differs,
            "shift": self.shift,
            "note": self.choice.note,
        }


def tap_rows(facts: DraftFacts) -> tuple[TapRow, ...]:
    """The table: one row per engine, and how each differs from what is declared."""
    meant = declared(facts)
    rows = []
    for rule in RULES:
        choice = rule.choose(facts)
        shift = _shift(meant, choice)
        rows.append(
            TapRow(
                engine=rule.engine,
                source=rule.source,
                choice=choice,
                differs=UNKNOWN_LAYERS
                if _is_open(facts, meant, choice)
                else _difference(meant, choice, shift),
                shift=shift,
            )
        )
    return tuple(rows)


def _shift(meant: Choice, choice: Choice) -> int | None:
    if meant.boundaries is None or choice.boundaries is None:
        return 0 if meant.words == choice.words else None
    off = {b - a for a, b in zip(sorted_ids(meant.boundaries), sorted_ids(choice.boundaries))}
    same_count = len(set(meant.boundaries)) == len(set(choice.boundaries))
    return off.pop() if len(off) == 1 and same_count else None


def _is_open(facts: DraftFacts, meant: Choice, choice: Choice) -> bool:
    """An engine's default depends on the number of layers, which nobody said."""
    is_by_number = choice.is_default and choice.boundaries is None
    return facts.target_layers is None and is_by_number and meant.words != choice.words


def _difference(meant: Choice, choice: Choice, shift: int | None) -> str:
    if meant.words == choice.words:
        return ""
    if meant.boundaries is None or choice.boundaries is None:
        return "other layers"
    if shift == 0:
        return "other order"
    if shift is not None:
        return f"{count_of(abs(shift), 'layer')} {'early' if shift < 0 else 'late'}"
    return "fewer layers" if set(choice.boundaries) < set(meant.boundaries) else "other layers"
