"""The tables of a header in both readings, and raw against mapped ids of every step. Judges nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.intervals import Share
from spectrace.analysis.vocabulary import Reading, is_ramp, kept_ids, read_direct, read_offset
from spectrace.format.columns import Array
from spectrace.format.records import Run, VocabMap

_PADDED = 0.9
"""A draft with at least this share of the target's rows is padded differently, not reduced."""


@dataclass(frozen=True)
class Table:
    """What a trace's header says of the map."""

    run: Run

    @cached_property
    def map(self) -> VocabMap:
        """The header's record, empty when there is none."""
        return self.run.vocab_map or VocabMap()

    @cached_property
    def vocab_size(self) -> int | None:
        """V."""
        return None if self.run.target is None else self.run.target.vocab_size

    @cached_property
    def head_rows(self) -> int | None:
        """Rows of the draft's head, as recorded."""
        draft = self.run.draft
        if draft is None:
            return None
        return draft.head_rows if draft.head_rows is not None else draft.vocab_size

    @cached_property
    def draft_size(self) -> int | None:
        """Dv: ids the draft can say."""
        return len(self.map.d2t) if self.map.d2t else self.head_rows

    @cached_property
    def offset(self) -> Reading | None:
        """The table read as offsets."""
        return None if not self.map.d2t else read_offset(self.map.d2t, self.map.t2d, self.vocab_size)

    @cached_property
    def direct(self) -> Reading | None:
        """The table read as target ids."""
        return None if not self.map.d2t else read_direct(self.map.d2t, self.map.t2d, self.vocab_size)

    @cached_property
    def kept(self) -> Array | None:
        """Target ids the draft can express, where that is known."""
        if self.map.t2d is not None:
            return kept_ids(self.map.t2d, self.vocab_size)
        if self.offset is not None and self.offset.is_sound:
            return np.unique(self.offset.ids)
        return None

    @cached_property
    def is_ramp(self) -> bool:
        """The table is a buffer's default."""
        if not self.map.d2t or self.offset is None or not is_ramp(self.map.d2t):
            return False
        return self.offset.out_of_range > 0 or self.offset.equals_mask is not True

    @cached_property
    def is_absolute(self) -> bool:
        """The table holds target ids where offsets belong."""
        if self.offset is None or self.direct is None or self.is_ramp:
            return False
        return self.direct.is_sound and not self.offset.is_sound

    @cached_property
    def is_reduced(self) -> bool:
        """The draft can say fewer ids than the target, by more than padding."""
        sizes = self.head_rows, self.vocab_size
        return sizes[0] is not None and sizes[1] is not None and sizes[0] < _PADDED * sizes[1]


class MapTally:
    """Raw against mapped ids of every step."""

    FIELDS = (
        "request",
        "draft_ids",
        "proposal_ids",
        "target_ids",
        "num_accepted",
        "flags",
        "parents",
        "emitted_ids",
    )

    def __init__(self, run: Run) -> None:
        self.table = Table(run)
        self.pairs = 0
        """Draft tokens whose raw and mapped id are both known."""
        self.telling = 0
        """Of these, where the two readings differ."""
        self.as_offset = self.as_direct = self.as_identity = self.as_neither = 0
        """Of those the readings tell apart; ``as_neither`` and ``as_identity`` of all pairs."""
        self.direct_steps = Witnesses()
        self.identity_steps = Witnesses()
        self.neither_steps = Witnesses()
        self.outside_mask: set[int] = set()
        """Mapped ids that t2d does not hold, the first of them."""
        self.range_steps = Witnesses()
        """Steps with a raw or mapped id that does not exist."""
        self.raw_outside = self.mapped_outside = 0
        self.first = 0
        """Steps whose first raw id and the target's pick there are known."""
        self.hits = {"recorded": 0, "offset": 0, "direct": 0}
        """Of these, where the pick is the first draft token under each reading."""
        self.picks = self.expressible = 0
        """First picks of the target, and those the draft can express."""

    def add(self, block: Block) -> None:
        """Counts a block."""
        table = self.table
        mapped = block.tokens("proposal_ids")
        if mapped is None:
            return
        self._ranges(block, table, mapped.values)
        raw = block.tokens("draft_ids")
        picks = block.slots("target_ids")
        if picks is not None:
            self._ceiling(block, table, picks.values[block.root_slots], picks.known[block.root_slots])
        if raw is None:
            return
        readings = _apply(table, raw.values)
        self._compare(block, raw.known, raw.values, mapped.values, readings)
        if picks is not None:
            self._counterfactual(block, raw.known, mapped.values, readings, picks.values, picks.known)

    def _ranges(self, block: Block, table: Table, mapped: Array) -> None:
        if table.vocab_size is not None:
            outside = (mapped < 0) | (mapped >= table.vocab_size)
            self.mapped_outside += int(outside.sum())
            self.range_steps.note_tokens(block, outside)
        raw = block.tokens("draft_ids")
        if raw is not None and table.draft_size is not None:
            # A head with more rows than the table has entries says ids that do exist.
            rows = max(table.draft_size, table.head_rows or 0)
            outside = raw.known & ((raw.values < 0) | (raw.values >= rows))
            self.raw_outside += int(outside.sum())
            self.range_steps.note_tokens(block, outside)

    def _compare(
        self, block: Block, known: Array, raw: Array, mapped: Array, readings: tuple[Array, Array] | None
    ) -> None:
        self.pairs += int(known.sum())
        identity = known & (raw == mapped)
        self.as_identity += int(identity.sum())
        self.identity_steps.note_tokens(block, identity)
        if readings is None:
            return
        offset, direct = readings
        usable = known & (offset >= 0)
        telling = usable & (offset != direct)
        wrong = telling & (mapped == direct)
        exists = (mapped >= 0) & (mapped < (self.table.vocab_size or np.iinfo(np.int64).max))
        neither = usable & exists & (mapped != offset) & (mapped != direct)
        self.telling += int(telling.sum())
        self.as_offset += int((telling & (mapped == offset)).sum())
        self.as_direct += int(wrong.sum())
        self.as_neither += int(neither.sum())
        self.direct_steps.note_tokens(block, wrong)
        self.neither_steps.note_tokens(block, neither)
        kept = self.table.kept
        if kept is not None and len(self.outside_mask) < 16:
            seen = np.unique(mapped[wrong])
            self.outside_mask.update(np.setdiff1d(seen, kept)[:16].tolist())

    def _counterfactual(
        self,
        block: Block,
        known: Array,
        mapped: Array,
        readings: tuple[Array, Array] | None,
        picks: Array,
        picked: Array,
    ) -> None:
        rows = np.flatnonzero(block.is_real)
        tokens, slots = block.starts[rows], block.root_slots[rows]
        usable = known[tokens] & picked[slots]
        tokens, slots = tokens[usable], slots[usable]
        self.first += len(tokens)
        self.hits["recorded"] += int((mapped[tokens] == picks[slots]).sum())
        if readings is not None:
            for name, ids in zip(("offset", "direct"), readings):
                self.hits[name] += int((ids[tokens] == picks[slots]).sum())

    def _ceiling(self, block: Block, table: Table, picks: Array, known: Array) -> None:
        if table.kept is None:
            return
        own = picks[block.is_real & known]
        self.picks += len(own)
        self.expressible += int(_is_in(own, table.kept).sum())

    def hit_share(self, reading: str) -> Share:
        """Share of the first picks that a reading's first draft token meets."""
        return Share(self.hits[reading], self.first)


def _apply(table: Table, raw: Array) -> tuple[Array, Array] | None:
    """Raw ids through both readings; -1 where the table has no such entry."""
    if table.offset is None or table.direct is None:
        return None
    size = len(table.offset.ids)
    within = (raw >= 0) & (raw < size)
    at = np.where(within, raw, 0)
    return np.where(within, table.offset.ids[at], -1), np.where(within, table.direct.ids[at], -1)


def _is_in(ids: Array, kept: Array) -> Array:
    at = np.minimum(np.searchsorted(kept, ids), len(kept) - 1)
    found: Array = kept[at] == ids if len(kept) else np.zeros(len(ids), bool)
    return found
