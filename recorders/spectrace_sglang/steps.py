"""Rows of a verified batch -> arrays for the writer: the fields of trace-model, column by column.

numpy only. Refuses to touch a tensor or to decide what was committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectrace_serving.rows import Outcome, flat, outcomes, tap_columns
from spectrace_sglang.captures import Verified
from spectrace_sglang.columns import Proposed
from spectrace_transformers.reduction import Array, log_normaliser


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for the whole run."""

    started_ns: int
    """Monotonic clock at the start of the trace."""
    boundaries: tuple[int, ...] | None
    """k of B(k) of the states that the draft is fed, in their order; None where that is unknown."""
    raw_ids: Array | None
    """[V] raw id of each target id by the engine's map, -1 for none; None where it does not tell."""
    is_simulated: bool = False
    """Acceptance is drawn, not decided."""


@dataclass(frozen=True, slots=True)
class Seed:
    """One request's row among the first choices that a proposal grows of."""

    arrays: Mapping[str, Array]
    row: int


@dataclass(slots=True, kw_only=True)
class Row(Outcome):
    """One request in a verified batch."""

    name: str
    number: int
    at: int
    """Row of the batch."""
    position: int
    nodes: list[int]
    """[K] of the proposal, as the engine numbers them: the root is 0."""
    parents: list[int]
    """[K] place of each one's parent among them, -1 for the root."""
    path: list[int]
    """Places of the accepted nodes."""
    prefix_hit_length: int
    seed: Seed | None

    @property
    def num_accepted(self) -> int:
        """Nodes on the path."""
        return len(self.path)

    @property
    def is_all_accepted(self) -> bool:
        """The path ends where the proposal does."""
        return (self.path[-1] if self.path else -1) not in self.parents


@dataclass(frozen=True, slots=True)
class Batch:
    """A verification whose numbers have arrived."""

    event: Verified
    arrays: Mapping[str, Array]
    drafted: Mapping[str, Array] | None

    def sampled(self, at: int) -> list[int]:
        """What the engine accepted and added for one request, before the scheduler looks at it."""
        taken = self.arrays["accept_index"][at, : int(self.arrays["accept_lens"][at])]
        found: list[int] = self.arrays["sampled"][taken].tolist()
        return found

    @property
    def max_length(self) -> int:
        """Longest committed length in the batch."""
        if self.event.prompts is not None:
            return max(length for length, _ in self.event.prompts)
        return int(self.arrays["positions"][:, 0].max()) + 1


def fields_of(rules: Rules, batch: Batch, rows: Sequence[Row]) -> dict[str, Any]:
    """Fields of rows that all have a seed, or none, and of which all ended, or none."""
    fields = _scalars(rules, batch, rows)
    fields |= outcomes(rows, is_simulated=rules.is_simulated)
    drafted = [row.num_drafted for row in rows]  # [B] K of each
    fields["proposal_ids"] = (flat([row.proposal for row in rows]), drafted)
    if batch.event.is_tree and any(drafted):
        fields["parents"] = (flat([row.parents for row in rows]), drafted)
        fields["accepted_nodes"] = (flat([row.path for row in rows]), [len(row.path) for row in rows])
    fields |= _target(batch, rows)
    if any(drafted):
        fields |= _draft(rules, batch, rows)
    if batch.event.taps is not None and "tap_projections" in batch.arrays:
        at = np.array([row.at for row in rows])
        fields |= tap_columns(batch.event.taps, batch.arrays, at, rules.boundaries)
    return fields


def _scalars(rules: Rules, batch: Batch, rows: Sequence[Row]) -> dict[str, Any]:
    """Fields of one value, besides the outcome."""
    event, drafted, count = batch.event, batch.event.drafted, len(rows)
    started = event.started if drafted is None else drafted.started
    fields: dict[str, Any] = {
        "request": [row.name for row in rows],
        "step": np.array([row.number for row in rows]),
        "batch_row": np.array([row.at for row in rows]),
        "engine_step": np.full(count, event.engine_step),
        "max_batch_length": np.full(count, batch.max_length),
        "position": np.array([row.position for row in rows]),
        "verify_ns": np.full(count, event.started.until(event.ended)),
        "started_ns": np.full(count, started.host_ns - rules.started_ns),
        "logits_kind": ["raw"] * count,
    }
    if drafted is not None:
        fields["draft_ns"] = np.full(count, drafted.started.until(drafted.ended))
        fields["step_ns"] = np.full(count, drafted.started.until(event.ended))
    if "seq_lens" in batch.arrays:
        # The root is read in this forward; SGLang does not count it yet.
        fields["target_kv_length"] = batch.arrays["seq_lens"][fields["batch_row"]] + 1
    if event.prompts is not None:
        fields["target_kv_length"] = fields["position"]
        fields["prefix_hit_length"] = np.array([row.prefix_hit_length for row in rows])
    return fields


def _target(batch: Batch, rows: Sequence[Row]) -> dict[str, Any]:
    """What the target thought at the root and after each node."""
    arrays, n = batch.arrays, batch.event.num_nodes
    if "top_ids" not in arrays:
        return {}
    drafted = [row.num_drafted for row in rows]
    counts = [number + 1 for number in drafted]
    after = flat([[row.at * n + node for node in (0, *row.nodes)] for row in rows])  # [sum of K + 1]
    picks = arrays["top_ids"][after, 0]
    if "better" not in arrays:  # the last of them: all are there, or too few
        return {"target_ids": (picks, counts)}
    judged = flat([[row.at * n + node for node in row.nodes] for row in rows])  # [sum of K]
    judges = flat([[row.at * n + (0, *row.nodes)[parent + 1] for parent in row.parents] for row in rows])
    norm = log_normaliser(arrays["top"][:, 0], arrays["first"])  # [B * n]
    top = arrays["top"][after]  # [sum of K + 1, m]
    gaps = top[:, 0] - top[:, 1]
    starts = np.cumsum([0, *counts[:-1]])
    return {
        "target_ids": (_as_taken(picks, gaps, rows, starts), counts),
        "target_logprobs": (arrays["chosen"][judged] - norm[judges], drafted),
        "target_ranks": (arrays["better"][judged].astype(np.int64) + 1, drafted),
        "target_gaps": (gaps, counts),
        "target_top.id": (arrays["top_ids"][after], counts),
        "target_top.logprob": (top - norm[after, None], counts),
        "nonfinite.target_logits": np.add.reduceat(arrays["nonfinite"][after].astype(np.int64), starts),
    }


def _as_taken(picks: Array, gaps: Array, rows: Sequence[Row], starts: Array) -> Array:
    """The target's picks; of two equal logits, the one that the engine took."""
    if gaps.all() or not all(row.is_greedy for row in rows):
        return picks
    taken = picks.copy()
    for row, start in zip(rows, starts.tolist()):
        for node, token in zip((0, *(place + 1 for place in row.path)), row.emitted):
            taken[start + node] = token
    return np.where(gaps == 0, taken, picks)


def _draft(rules: Rules, batch: Batch, rows: Sequence[Row]) -> dict[str, Any]:
    """What the draft thought of each node; without its own values, the raw ids by the map."""
    lengths = [row.num_drafted for row in rows]
    seeds = [row.seed.arrays for row in rows if row.seed is not None]
    if batch.drafted is not None and "node_rank" in batch.drafted and all("seed_raw" in s for s in seeds):
        proposed = Proposed(batch, rows) if seeds else None
        if proposed is not None and proposed.is_whole:
            return proposed.fields()
    if rules.raw_ids is None:
        return {}
    ids = flat([row.proposal for row in rows]).clip(0, len(rules.raw_ids) - 1)
    return {"draft_ids": (rules.raw_ids[ids], lengths)}
