"""Rows of a verified batch -> arrays for the writer: the fields of trace-model, column by column.

numpy only; no loop over positions. Refuses to touch a tensor or to decide what was committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from spectrace_serving.rows import Outcome, Taps, flat, outcomes, places, tap_columns
from spectrace_transformers.reduction import Array, log_normaliser
from spectrace_vllm.captures import Proposed, Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for the whole run."""

    started_ns: int
    """Monotonic clock at the start of the trace."""
    boundaries: tuple[int, ...] | None
    """k of B(k) of the states that the draft is fed, in their order; None where that is unknown."""
    max_length: int | None
    is_simulated: bool = False
    """Acceptance is drawn, not decided."""


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

    name: str
    number: int
    at: int
    """Row of the batch."""
    start: int
    """First of its rows with logits."""
    position: int
    prefix_hit_length: int
    draft: Draft | None
    draft_row: int

    @property
    def num_accepted(self) -> int:
        """Length of the common prefix of what was proposed and what was committed."""
        pairs = zip(self.proposal, self.emitted)
        return next(
            (at for at, (a, b) in enumerate(pairs) if a != b), min(len(self.proposal), len(self.emitted))
        )

    @property
    def is_all_accepted(self) -> bool:
        """Nothing of the proposal is left."""
        return self.num_accepted == self.num_drafted


@dataclass(frozen=True)
class Batch:
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


def fields_of(rules: Rules, batch: Batch, rows: Sequence[Row]) -> dict[str, Any]:
    """Fields of rows that have the same proposal behind them, as `TraceWriter.steps` takes them."""
    fields = _scalars(rules, batch, rows)
    fields |= outcomes(rows, is_simulated=rules.is_simulated)
    drafted = np.array([row.num_drafted for row in rows])  # [B] K of each
    starts = np.array([row.start for row in rows])
    fields["proposal_ids"] = (flat([row.proposal for row in rows]), drafted)
    fields |= _target(batch.arrays, rows, starts, drafted)
    if rows[0].draft is not None:
        fields |= _draft(rows[0].draft, np.array([row.draft_row for row in rows]), drafted)
    if batch.taps is not None:
        at = np.array([row.at for row in rows])
        fields |= tap_columns(batch.taps, batch.tap_arrays, at, rules.boundaries)
    return fields


def _scalars(rules: Rules, batch: Batch, rows: Sequence[Row]) -> dict[str, Any]:
    """Fields of one value, besides the outcome."""
    event, draft, count = batch.event, rows[0].draft, len(rows)
    started = event.started
    fields: dict[str, Any] = {
        "request": [row.name for row in rows],
        "step": np.array([row.number for row in rows]),
        "batch_row": np.array([row.at for row in rows]),
        "engine_step": np.full(count, event.engine_step),
        "max_batch_length": np.full(count, batch.max_length),
        "position": np.array([row.position for row in rows]),
        "verify_ns": np.full(count, event.started.until(event.ended)),
        "logits_kind": ["raw"] * count,
    }
    if draft is not None:
        fields["draft_ns"] = np.full(count, draft.event.started.until(draft.event.ended))
        if draft.event.engine_step == event.engine_step - 1:
            started = draft.event.started
            fields["step_ns"] = np.full(count, started.until(event.ended))
    fields["started_ns"] = np.full(count, started.host_ns - rules.started_ns)
    if "seq_lens" in batch.arrays:
        lengths = batch.arrays["seq_lens"][fields["batch_row"]]  # the draft tokens are in it already
        fields["target_kv_length"] = lengths - [row.num_drafted for row in rows]
    if not rows[0].num_drafted:
        fields["prefix_hit_length"] = np.array([row.prefix_hit_length for row in rows])
    return fields


def _target(
    arrays: Mapping[str, Array], rows: Sequence[Row], starts: Array, drafted: Array
) -> dict[str, Any]:
    """What the target thought at the root and after each draft token."""
    if "top_ids" not in arrays:
        return {}
    judging = drafted + 1  # [B] K + 1, a row for the root and for each draft token
    nodes = places(starts, judging)  # [sum of K + 1]
    judged = places(starts, drafted)  # [sum of K] rows that judge a draft token
    picks = arrays["top_ids"][nodes, 0]
    fields: dict[str, Any] = {"target_ids": (picks, judging)}
    if "top" not in arrays:
        return fields
    norm = log_normaliser(arrays["top"][:, 0], arrays["first"][:, 0])  # [R]
    top = arrays["top"][nodes]  # [sum of K + 1, m]
    gaps = top[:, 0] - top[:, 1]
    fields["target_ids"] = (_as_taken(picks, gaps, rows, drafted), judging)
    return fields | {
        "target_logprobs": (arrays["chosen"][judged, 0] - norm[judged], drafted),
        "target_ranks": (arrays["better"][judged].astype(np.int64) + 1, drafted),
        "target_gaps": (gaps, judging),
        "target_top.id": (arrays["top_ids"][nodes], judging),
        "target_top.logprob": (top - norm[nodes, None], judging),
        "nonfinite.target_logits": np.add.reduceat(
            arrays["nonfinite"][nodes].astype(np.int64), np.cumsum(judging) - judging
        ),
    }


def _as_taken(picks: Array, gaps: Array, rows: Sequence[Row], drafted: Array) -> Array:
    """The target's picks; of two equal logits, the one that the engine took."""
    if gaps.all() or not all(row.is_greedy for row in rows):
        return picks
    taken, ends = picks.copy(), np.cumsum(drafted + 1)
    for row, end in zip(rows, ends.tolist()):
        first = end - row.num_drafted - 1
        taken[first : first + len(row.emitted)] = row.emitted
    return np.where(gaps == 0, taken, picks)


def _draft(draft: Draft, rows: Array, drafted: Array) -> dict[str, Any]:
    """What the draft thought of each token it proposed; its arrays are [K, batch, ..]."""
    arrays = draft.arrays
    depths = places(np.zeros_like(drafted), drafted)  # [sum of K]
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
