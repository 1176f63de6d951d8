"""Positions: rotary settings of the draft beside the target's, and the length it was made for.

Rules K06 and K07, as far as two configurations can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.draft.facts import DraftFacts
from spectrace.checkpoint.config import Config

_SCALING = ("rope_type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


@dataclass(frozen=True, slots=True)
class RotaryRow:
    """One setting."""

    name: str
    draft: str
    target: str
    """``-`` where nothing is declared."""

    @property
    def differs(self) -> bool:
        """Both are declared, and not the same."""
        return "-" not in (self.draft, self.target) and self.draft != self.target

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"name": self.name, "draft": self.draft, "target": self.target, "differs": self.differs}


def rotary_rows(facts: DraftFacts) -> tuple[RotaryRow, ...]:
    """The table of rotary settings; old and new spelling of transformers read alike.

    Source: transformers 5 keeps ``rope_theta`` and the scaling in ``rope_parameters``, transformers 4 in
    ``rope_theta`` and ``rope_scaling``.
    """
    draft, target = _settings(facts.config), _settings(facts.target)
    return tuple(
        RotaryRow(name, draft.get(name, "-"), target.get(name, "-"))
        for name in dict.fromkeys((*draft, *target))
    )


def _settings(config: Config) -> dict[str, str]:
    scaling = config.section("rope_parameters") or config.section("rope_scaling")
    found = {
        "rope_theta": _plain(config.number("rope_theta") or scaling.number("rope_theta")),
        "rope_type": scaling.text("rope_type") or scaling.text("type") or ("default" if config else None),
        **{name: _plain(scaling.number(name)) for name in _SCALING[1:]},
        "partial_rotary_factor": _plain(
            config.number("partial_rotary_factor") or scaling.number("partial_rotary_factor")
        ),
        "max_position_embeddings": _plain(config.number("max_position_embeddings")),
    }
    return {name: value for name, value in found.items() if value is not None}


def _plain(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{int(value)}" if value.is_integer() and abs(value) < 1e15 else f"{value:g}"


def judge_rotary(facts: DraftFacts, rows: Sequence[RotaryRow]) -> Iterator[Outcome]:
    """Every answer about positions that a configuration gives."""
    yield from _of_spellings(facts)
    if not facts.target:
        yield NotChecked(
            id="positions/rotary-config",
            reason="nothing to compare with; give the target with --target",
            missing=("target.rope",),
        )
        return
    by_name = {row.name: row for row in rows}
    differing = [row for row in rows if row.differs and row.name != "max_position_embeddings"]
    if differing:
        shown = ", ".join(f"{row.name} {row.draft} (target {row.target})" for row in differing[:3])
        yield Finding(
            id="positions/rotary-config",
            strength=Strength.HINT,
            summary=f"The draft's rotary settings are not the target's: {shown}.",
            advice="Right only if the draft was trained so; check the training run's configuration.",
            evidence={row.name: {"draft": row.draft, "target": row.target} for row in differing},
        )
    else:
        yield Cleared(
            id="positions/rotary-config", summary="rotary settings are the target's, or not declared"
        )
    length = by_name.get("max_position_embeddings")
    if length is not None and length.differs and float(length.draft) < float(length.target):
        yield Finding(
            id="window/length",
            strength=Strength.HINT,
            summary=f"The draft was made for {int(float(length.draft)):,} positions, "
            f"the target for {int(float(length.target)):,}.",
            advice="Beyond its own length a draft extrapolates, and some engines stop drafting: "
            "watch acceptance by context length.",
            evidence={"draft": length.draft, "target": length.target},
        )


def _of_spellings(facts: DraftFacts) -> Iterator[Outcome]:
    """Transformers 4 reads rope_theta, transformers 5 rope_parameters; both may be there."""
    old = facts.config.number("rope_theta")
    new = facts.config.number("rope_parameters", "rope_theta")
    if old is not None and new is not None and old != new:
        yield Finding(
            id="positions/rotary-config",
            strength=Strength.STRONG,
            summary="config.json gives two bases: "
            f"rope_theta {_plain(old)}, and {_plain(new)} in rope_parameters.",
            advice="Keep the one of the training run; which of the two is used depends on the engine.",
            evidence={"rope_theta": old, "rope_parameters.rope_theta": new},
        )
