"""Is the draft run at the right positions, with the rotary settings of its checkpoint?

Conventions differ: the first draft token may be made at the index of the last committed token or one before
it. A distance that changes within a run, steps that do not go up by one, and distances no engine uses are
faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.figures import count_of
from spectrace.format.records import Run

_CONVENTIONS: Mapping[str, tuple[int, ...]] = {
    "draft_model": (-1,),
    "early_exit": (-1,),
    "eagle": (-2, -1),
    "eagle2": (-2, -1),
    "eagle3": (-2, -1),
    "mtp": (-2, -1),
}
"""Method -> position of the first draft pass less committed length. A draft model reads the last
committed token at its index; EAGLE and MTP read it beside the state of the token before it (vLLM
``v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py``: ids shifted left, positions not)."""
_ANY = (-2, -1, 0)
_PARALLEL = ("medusa", "dflash")
"""Methods that draft several tokens from one position."""


class PositionTally:
    """Distances of the draft's positions from the committed length, and their steps."""

    FIELDS = (
        "position",
        "proposal_ids",
        "draft_positions",
        "flags",
        "parents",
        "num_accepted",
        "emitted_ids",
        "draft_inputs.token_position",
    )

    def __init__(self, run: Run) -> None:
        self.read = 0
        """Steps in which the first token that the draft read is known."""
        self.misread: dict[int, int] = {}
        """Distance of that token from the last committed one -> steps."""
        self.misread_steps = Witnesses()
        self.offsets: dict[int, int] = {}
        self.offset_steps: dict[int, Witnesses] = {}
        self.pairs = 0
        self.jumps = Witnesses()
        self.jump_count = 0

    def add(self, block: Block) -> None:
        """Counts a block."""
        self._read(block)
        found = block.tokens("draft_positions")
        if found is None:
            return
        rows = np.flatnonzero(block.is_real)
        rows = rows[found.known[block.starts[rows]]]
        offsets = np.clip(found.values[block.starts[rows]] - block.positions[rows], -10_000, 10_000)
        for offset, count in zip(*(a.tolist() for a in np.unique(offsets, return_counts=True))):
            self.offsets[offset] = self.offsets.get(offset, 0) + count
            witnesses = self.offset_steps.setdefault(offset, Witnesses())
            if len(witnesses.steps) < Witnesses.LIMIT:
                mask = np.zeros(block.num_rows, bool)
                mask[rows[offsets == offset]] = True
                witnesses.note(block, mask)
        follows = (block.token_index > 0) & (block.is_real & ~block.is_tree)[block.token_rows]
        follows &= found.known & np.concatenate([[False], found.known[:-1]])
        step = np.diff(found.values, prepend=0)
        wrong = follows & (step != 1)
        self.pairs += int(follows.sum())
        self.jump_count += int(wrong.sum())
        self.jumps.note_tokens(block, wrong)

    def _read(self, block: Block) -> None:
        first = block.element("draft_inputs.token_position", np.zeros(block.num_rows, np.int64))
        if first is None:
            return
        rows = block.is_real & first.known
        distance = np.clip(first.values - (block.positions - 1), -10_000, 10_000)
        self.read += int(rows.sum())
        found, counts = np.unique(distance[rows & (distance != 0)], return_counts=True)
        for value, count in zip(found.tolist(), counts.tolist()):
            self.misread[value] = self.misread.get(value, 0) + count
        self.misread_steps.note(block, rows & (distance != 0))


def judge(facts: Facts) -> Iterator[Outcome]:
    """Positions of the steps, tokens beside the states, then rotary settings."""
    yield from _of_steps(facts)
    yield from _of_tokens(facts)
    yield from _rotary(facts)


def _of_tokens(facts: Facts) -> Iterator[Outcome]:
    """A draft that is fed states reads the last committed token beside the state before it."""
    tally = facts.of(PositionTally)
    if not tally.read:
        if not facts.shares_vocabulary:
            yield facts.not_recorded(
                "positions/token-shift",
                "record the index of the token that the draft reads beside each state",
                "draft_inputs.token_position",
            )
        return
    wrong = sum(tally.misread.values())
    if not wrong:
        yield Cleared(
            id="positions/token-shift",
            summary=f"the draft reads the last committed token first in all {tally.read:,} steps",
        )
        return
    usual = max(tally.misread, key=lambda distance: tally.misread[distance])
    yield Finding(
        id="positions/shifted",
        strength=Strength.CERTAIN,
        summary=f"The draft reads the token {abs(usual)} {'before' if usual < 0 else 'after'} the one that "
        "belongs beside its state.",
        advice="Shift the ids left by one against the states: state P goes with token P + 1.",
        evidence={"steps_affected": Share(wrong, tally.read), "distance": usual},
        steps=tally.misread_steps.steps,
    )


def _of_steps(facts: Facts) -> Iterator[Outcome]:
    tally, method = facts.of(PositionTally), facts.run.method
    if not tally.offsets:
        if method not in ("ngram", "suffix"):
            yield facts.not_recorded(
                "positions/shifted", "record the positions the draft is run at", "draft_positions"
            )
        return
    if tally.jumps and method not in _PARALLEL:
        yield _shifted(
            "The draft's positions do not go up by one from token to token.",
            "Advance the position with each draft token.",
            {"tokens_off": Share(tally.jump_count, tally.pairs)},
            tally.jumps.steps,
        )
        return
    allowed = _CONVENTIONS.get(method or "", _ANY)
    usual = max(tally.offsets, key=lambda offset: tally.offsets[offset])
    total = sum(tally.offsets.values())
    offsets = dict(sorted(tally.offsets.items(), key=lambda item: -item[1])[:8])
    if usual not in allowed:
        shift = min((usual - offset for offset in allowed), key=abs)
        yield _shifted(
            f"The draft is run {count_of(abs(shift), 'position')} too {'late' if shift > 0 else 'early'}.",
            "Give the draft the position of the token it reads.",
            {"shift": shift, "first_position_less_committed": offsets, "steps": total},
            tally.offset_steps[usual].steps,
        )
    elif len(tally.offsets) > 1:
        others = {offset: n for offset, n in tally.offsets.items() if offset != usual}
        first = next(iter(others))
        yield _shifted(
            "The draft's positions drift: their distance from the committed text changes from step to step.",
            "Set the draft's position from the committed length in each step instead of counting it up.",
            {
                "shift": first - usual,
                "steps_off": Share(sum(others.values()), total),
                "first_position_less_committed": offsets,
            },
            sorted(s for offset in others for s in tally.offset_steps[offset].steps)[:5],
        )
    else:
        yield Cleared(
            id="positions/shifted",
            summary=f"the draft starts at committed length {usual:+d} in {count_of(total, 'step')}, and goes "
            "up by one",
            evidence={"first_position_less_committed": usual, "steps": total},
        )


def _shifted(summary: str, advice: str, evidence: dict[str, Any], steps: list[int]) -> Finding:
    return Finding(
        id="positions/shifted",
        strength=Strength.CERTAIN,
        summary=summary,
        advice=advice,
        evidence=evidence,
        steps=steps,
    )


def _rotary(facts: Facts) -> Iterator[Outcome]:
    draft = facts.run.draft
    if facts.run.method in ("ngram", "suffix"):
        return
    if draft is None or draft.rope is None or draft.rope_declared is None:
        missing = [
            f"draft.{name}"
            for name in ("rope", "rope_declared")
            if draft is None or getattr(draft, name) is None
        ]
        yield facts.not_recorded(
            "positions/rotary-config",
            "record rotary settings as used and as the checkpoint declares them",
            *missing,
        )
        return
    used, declared = draft.rope, draft.rope_declared
    differing = {
        key: [used[key], declared[key]]
        for key in used
        if key in declared and _differ(used[key], declared[key])
    }
    if differing:
        yield Finding(
            id="positions/rotary-config",
            strength=Strength.CERTAIN,
            summary="The draft runs with other rotary settings than its checkpoint declares: "
            f"{', '.join(differing)}.",
            advice="Run the draft with the settings of its own config, not the target's.",
            evidence={key: {"used": pair[0], "declared": pair[1]} for key, pair in differing.items()},
        )
    else:
        yield Cleared(id="positions/rotary-config", summary="rotary settings are those of the checkpoint")


def _differ(used: Any, declared: Any) -> bool:
    if used is None or declared is None:
        return False
    if isinstance(used, (int, float)) and isinstance(declared, (int, float)):
        return abs(float(used) - float(declared)) > 1e-6 * max(abs(float(declared)), 1.0)
    return bool(used != declared)
