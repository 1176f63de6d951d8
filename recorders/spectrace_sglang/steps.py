"""Rows of a verified batch -> arrays for the writer: the fields of trace-model, column by column.

numpy only. Refuses to touch a tensor or to decide what was committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectrace_serving.rows import (
    Outcome,
    Rules,
    flat,
    outcomes,
    scalars,
    tap_columns,
    target_columns,
    target_picks,
)
from spectrace_sglang.columns import DraftColumns
from spectrace_sglang.events import Verified
from spectrace_transformers.reduction import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRules(Rules):
    """What holds for the whole run."""

    raw_ids: Array | None
    """[V] raw id of each target id by the engine's map, -1 for none; None where it does not tell."""


@dataclass(frozen=True, slots=True)
class Seed:
    """One request's row among the first choices that a proposal grows of."""

    arrays: Mapping[str, Array]
    row: int


@dataclass(slots=True, kw_only=True)
class Row(Outcome):
    """One request in a verified batch."""

    nodes: list[int]
    """[K] of the proposal, as the engine numbers them: the root is 0."""
    parents: list[int]
    """[K] place of each one's parent among them, -1 for the root."""
    path: list[int]
    """Places of the accepted nodes."""
    seed: Seed | None

    @property
    def is_all_accepted(self) -> bool:
        """The path ends where the proposal does."""
        return (self.path[-1] if self.path else -1) not in self.parents

    @property
    def places(self) -> Sequence[int]:
        """Down the path."""
        return (0, *(place + 1 for place in self.path))


@dataclass(frozen=True, slots=True)
class Arrived:
    """A verification whose numbers have arrived."""

    event: Verified
    arrays: Mapping[str, Array]
    drafts: Mapping[str, Array] | None
    """The draft's own values of this round."""

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


def fields_of(rules: TreeRules, batch: Arrived, rows: Sequence[Row]) -> dict[str, Any]:
    """Fields of rows that all have a seed, or none, and of which all ended, or none."""
    fields = _scalars(rules, batch, rows)
    fields |= outcomes(rows, is_simulated=rules.is_simulated)
    drafted = np.array([row.num_drafted for row in rows])  # [B] K of each
    fields["proposal_ids"] = (flat([row.proposal for row in rows]), drafted)
    is_proposed = any(row.nodes for row in rows)
    if batch.event.is_tree and is_proposed:
        fields["parents"] = (flat([row.parents for row in rows]), drafted)
        fields["accepted_nodes"] = (flat([row.path for row in rows]), [len(row.path) for row in rows])
    fields |= _target(batch, rows, drafted)
    if is_proposed:
        fields |= _draft(rules, batch, rows, drafted)
    if batch.event.taps is not None and "tap_projections" in batch.arrays:
        at = np.array([row.at for row in rows])
        fields |= tap_columns(batch.event.taps, batch.arrays, at, rules.boundaries)
    return fields


def _scalars(rules: TreeRules, batch: Arrived, rows: Sequence[Row]) -> dict[str, Any]:
    """Fields of one value, besides the outcome."""
    event, proposed = batch.event, batch.event.proposed
    drafting = None if proposed is None else (proposed.started, proposed.ended)
    fields = scalars(rules, event, rows, batch.max_length, drafting)
    if "seq_lens" in batch.arrays:
        # The root is read in this forward; SGLang does not count it yet.
        fields["target_kv_length"] = batch.arrays["seq_lens"][fields["batch_row"]] + 1
    if event.prompts is not None:
        fields["target_kv_length"] = fields["position"]
        fields["prefix_hit_length"] = np.array([row.prefix_hit_length for row in rows])
    return fields


def _target(batch: Arrived, rows: Sequence[Row], drafted: Array) -> dict[str, Any]:
    """What the target thought, where the rows of a tree's nodes lie."""
    n = batch.event.num_nodes
    nodes = [[row.at * n + node for node in (0, *row.nodes)] for row in rows]  # [B][K + 1]
    after = flat(nodes)
    if "better" not in batch.arrays:  # the last of them: all are there, or too few
        return target_picks(batch.arrays, after, drafted)
    judges = [[own[parent + 1] for parent in row.parents] for own, row in zip(nodes, rows)]
    judged = flat([own[1:] for own in nodes])
    return target_columns(batch.arrays, rows, drafted, after=after, judged=judged, judges=flat(judges))


def _draft(rules: TreeRules, batch: Arrived, rows: Sequence[Row], drafted: Array) -> dict[str, Any]:
    """What the draft thought of each node; without its own values, the raw ids by the map."""
    seeds = [row.seed.arrays for row in rows if row.seed is not None]
    if batch.drafts is not None and "node_rank" in batch.drafts and all("seed_raw" in s for s in seeds):
        columns = DraftColumns(batch, rows) if seeds else None
        if columns is not None and columns.is_whole:
            return columns.fields()
    if rules.raw_ids is None:
        return {}
    ids = flat([row.proposal for row in rows]).clip(0, len(rules.raw_ids) - 1)
    return {"draft_ids": (rules.raw_ids[ids], drafted)}
