"""Rows of a verified batch -> arrays for the writer: the fields of trace-model, column by column.

numpy only; no loop over positions. Refuses to touch a tensor or to decide what was committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from spectrace_serving.rows import (
    Outcome,
    Rules,
    Taps,
    flat,
    outcomes,
    scalars,
    spread,
    tap_columns,
    target_columns,
    target_picks,
)
from spectrace_transformers.reduction import Array, log_normaliser
from spectrace_vllm.events import Proposed, Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRules(Rules):
    """What holds for the whole run."""

    max_length: int | None
    """Of a text with its prompt."""


@dataclass(frozen=True, eq=False)
class Draft:
    """A proposal whose numbers have arrived."""

    event: Proposed
    arrays: Mapping[str, Array]

    @classmethod
    def of(cls, event: Proposed, arrays: Mapping[str, Array]) -> Draft:
        """Finishes what the device left to do; takes no more of the arrays than a later step needs."""
        own = {name: values for name, values in arrays.items() if not name.startswith("tap_")}
        if "draft_top" in own:
            norm = log_normaliser(own["draft_top"][..., 0], own["draft_first"])  # [K, B]
            own["draft_top"] = own["draft_top"] - norm[..., None]
            own["draft_logprobs"] = own["draft_chosen"] - norm
            # H = -sum q log q = log Z - sum q x
            own["draft_entropy"] = norm - own["draft_mean"]
        return cls(event, own)

    def proposes(self, row: int, ids: Sequence[int]) -> bool:
        """Whether a request's proposal begins with these ids: the scheduler may cut it."""
        if self.event.lists is not None:
            return list(self.event.lists[row][: len(ids)]) == list(ids)
        proposal = self.arrays.get("proposal")  # [B, K]
        return proposal is not None and proposal[row, : len(ids)].tolist() == list(ids)


@dataclass(slots=True, kw_only=True)
class Row(Outcome):
    """One request in a verified batch."""

    start: int
    """First of its rows with logits."""
    draft: Draft | None
    draft_row: int

    @property
    def is_all_accepted(self) -> bool:
        """Nothing of the proposal is left."""
        return self.num_accepted == self.num_drafted

    @property
    def places(self) -> Sequence[int]:
        """One token after the other."""
        return range(len(self.emitted))


@dataclass(frozen=True)
class Arrived:
    """A verification, and the states of its forward."""

    event: Verified
    arrays: Mapping[str, Array]
    taps: Taps | None
    tap_arrays: Mapping[str, Array]

    @cached_property
    def max_length(self) -> int:
        """Longest committed length in the batch."""
        starts = np.cumsum(self.event.counts) - self.event.counts
        return int(self.arrays["row_positions"][starts].max()) + 1


def fields_of(rules: ChainRules, batch: Arrived, rows: Sequence[Row]) -> dict[str, Any]:
    """Fields of rows that have the same proposal behind them, as `TraceWriter.steps` takes them."""
    drafted = np.array([row.num_drafted for row in rows])  # [B] K of each
    fields = _scalars(rules, batch, rows, drafted)
    fields |= outcomes(rows, is_simulated=rules.is_simulated)
    starts = np.array([row.start for row in rows])
    fields["proposal_ids"] = (flat([row.proposal for row in rows]), drafted)
    fields |= _target(batch.arrays, rows, drafted, starts)
    if rows[0].draft is not None:
        fields |= _draft(rows[0].draft, np.array([row.draft_row for row in rows]), drafted)
    if batch.taps is not None:
        at = np.array([row.at for row in rows])
        fields |= tap_columns(batch.taps, batch.tap_arrays, at, rules.boundaries)
    return fields


def _target(
    arrays: Mapping[str, Array], rows: Sequence[Row], drafted: Array, starts: Array
) -> dict[str, Any]:
    """What the target thought, where the rows of a chain lie."""
    after = spread(starts, drafted + 1)
    if "better" not in arrays:  # the last of them: all are there, or too few
        return target_picks(arrays, after, drafted)
    judges = spread(starts, drafted)  # each draft token is judged in the row before its own
    return target_columns(arrays, rows, drafted, after=after, judged=judges, judges=judges)


def _scalars(rules: ChainRules, batch: Arrived, rows: Sequence[Row], drafted: Array) -> dict[str, Any]:
    """Fields of one value, besides the outcome."""
    event, draft = batch.event, None if rows[0].draft is None else rows[0].draft.event
    fields = scalars(
        rules,
        event,
        rows,
        batch.max_length,
        None if draft is None else (draft.started, draft.ended),
        is_one_round=draft is not None and draft.engine_step == event.engine_step - 1,
    )
    if "seq_lens" in batch.arrays:
        lengths = batch.arrays["seq_lens"][fields["batch_row"]]  # the draft tokens are in it already
        fields["target_kv_length"] = lengths - drafted
    if not rows[0].num_drafted:
        fields["prefix_hit_length"] = np.array([row.prefix_hit_length for row in rows])
    return fields


def _draft(draft: Draft, rows: Array, drafted: Array) -> dict[str, Any]:
    """What the draft thought of each token it proposed; its arrays are [K, batch, ..]."""
    arrays = draft.arrays
    depths = spread(np.zeros_like(drafted), drafted)  # [sum of K]
    at = np.repeat(rows, drafted)
    deepest = int(drafted.max(initial=0))
    fields: dict[str, Any] = {}
    for name, source in (
        ("draft_ids", "draft_ids"),
        ("draft_logprobs", "draft_logprobs"),
        ("draft_entropy", "draft_entropy"),
        ("draft_top.id", "draft_top_ids"),
        ("draft_top.logprob", "draft_top"),
        ("draft_positions", "draft_positions"),
        ("draft_inputs.rms", "draft_rms"),
    ):
        if source in arrays and len(arrays[source]) >= deepest:
            fields[name] = (arrays[source][depths, at], drafted)
    if "draft_nonfinite" in arrays:
        fields["nonfinite.draft_logits"] = arrays["draft_nonfinite"][:, rows].sum(axis=0).astype(np.int64)
    return fields
