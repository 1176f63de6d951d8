"""Rows of a verified batch -> arrays for the writer: the fields of trace-model, column by column.

numpy only. Refuses to touch a tensor or to decide what was committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectrace_serving.reduction import TOP
from spectrace_serving.rows import Outcome, flat, outcomes, tap_columns
from spectrace_sglang.captures import Verified
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
    max_length: int | None
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
        proposed = _Proposed(batch, rows) if seeds else None
        if proposed is not None and proposed.is_whole:
            return proposed.fields()
    if rules.raw_ids is None:
        return {}
    ids = flat([row.proposal for row in rows]).clip(0, len(rules.raw_ids) - 1)
    return {"draft_ids": (rules.raw_ids[ids], lengths)}


class _Proposed:
    """The nodes of some rows, and where in the draft's rows each comes from.

    Args:
        batch: with the draft's own values.
        rows: all with a seed.
    """

    def __init__(self, batch: Batch, rows: Sequence[Row]) -> None:
        assert batch.drafted is not None
        assert batch.event.drafted is not None
        self._arrays, self._rows = batch.drafted, rows
        self._topk = batch.event.drafted.topk
        self._batch = len(batch.event.requests)
        self._lengths = [row.num_drafted for row in rows]
        k = batch.event.num_nodes - 1
        self._at = flat([[row.at * k + node - 1 for node in row.nodes] for row in rows])  # [N]
        self._owner = np.repeat(np.arange(len(rows)), self._lengths)  # [N]
        self._depth = self._node("node_depth")
        self._is_first = self._depth == 0
        owners = np.array([row.at for row in rows])[self._owner]
        later = np.maximum(self._depth - 1, 0) * self._batch + owners
        self._source = later * self._topk + self._node("node_row")  # [N] row of the draft's later forwards

    def _node(self, name: str) -> Array:
        return self._arrays[name].reshape(-1)[self._at]

    def _seed(self, name: str) -> Array:
        """[B, ..] of each row's seed."""
        return np.stack([row.seed.arrays[name][row.seed.row] for row in self._rows if row.seed is not None])

    def _has(self, seed: str, later: str) -> bool:
        """Whether a value of the first tokens is there, and the one of the others if there are any."""
        return all(row.seed is not None and seed in row.seed.arrays for row in self._rows) and (
            later in self._arrays or bool(self._is_first.all())
        )

    @property
    def is_whole(self) -> bool:
        """The raw id of every node is known."""
        return self._has("seed_raw", "node_raw")

    def _joined(self, first: Array, later: Array | None) -> Array:
        """[N, ..] values of the first tokens' rows, [B, ..], and of the rows of the others."""
        found: Array = first[self._owner]
        if later is not None:
            deep = ~self._is_first
            found[deep] = later[self._source[deep]]
        return found

    def fields(self) -> dict[str, Any]:
        """Columns of the draft."""
        fields: dict[str, Any] = {"draft_ids": (self._raw_ids(), self._lengths)}
        if self._has("seed_mean", "row_mean") and self._has("seed_chosen", "node_chosen"):
            fields |= self._certainty()
        if self._has("seed_position", "row_positions"):
            positions = self._joined(self._seed("seed_position"), self._flat("row_positions"))
            fields["draft_positions"] = (positions, self._lengths)
        if self._has("seed_rms", "row_rms"):
            fields["draft_inputs.rms"] = self._inputs()
        return fields

    def _flat(self, name: str) -> Array | None:
        """[steps - 1, B * topk, ..] of the later forwards as one list of rows."""
        found = self._arrays.get(name)
        return None if found is None else found.reshape(-1, *found.shape[2:])

    def _raw_ids(self) -> Array:
        return self._of_nodes("raw")

    def _of_nodes(self, name: str) -> Array:
        """[N] what is known of the nodes themselves: of the first by rank, of the others one by one."""
        found: Array = self._seed(f"seed_{name}")[self._owner, self._node("node_rank") % self._topk]
        if f"node_{name}" in self._arrays:
            found = np.where(self._is_first, found, self._node(f"node_{name}"))
        return found

    def _certainty(self) -> dict[str, Any]:
        """Log q of each node, and the distribution that it comes from."""
        arrays = self._arrays
        norm = log_normaliser(self._seed("seed_top")[:, 0], self._seed("seed_first"))  # [B]
        later = log_normaliser(arrays["row_top"][:, 0], arrays["row_first"]) if "row_top" in arrays else None
        norms = self._joined(norm, later)  # [N]
        nonfinite = self._seed("seed_nonfinite")
        if "row_nonfinite" in arrays:
            bad = arrays["row_nonfinite"].reshape(-1, self._batch, self._topk).sum((0, 2))  # [batch]
            nonfinite = nonfinite + bad[[row.at for row in self._rows]]
        top = self._joined(self._seed("seed_top")[:, :TOP], _first(arrays.get("row_top")))
        ids = self._joined(self._seed("seed_top_ids")[:, :TOP], _first(arrays.get("row_top_ids")))
        mean = self._joined(self._seed("seed_mean"), arrays.get("row_mean"))
        return {
            "draft_logprobs": (self._of_nodes("chosen") - norms, self._lengths),
            # H = -sum q log q = log Z - sum q x
            "draft_entropy": (norms - mean, self._lengths),
            "draft_top.id": (ids, self._lengths),
            "draft_top.logprob": (top - norms[:, None], self._lengths),
            "nonfinite.draft_logits": nonfinite.astype(np.int64),
        }

    def _inputs(self) -> tuple[Array, list[int]]:
        """RMS of what the draft read at each depth: of several rows the root of their mean square."""
        first = self._seed("seed_rms")[:, None]  # [B, 1]
        if "row_rms" in self._arrays:
            own = self._arrays["row_rms"].reshape(-1, self._batch, self._topk)  # [steps - 1, batch, topk]
            later = np.sqrt((own**2).mean(-1))[:, [row.at for row in self._rows]].T  # [B, steps - 1]
            first = np.concatenate((first, later), axis=1)
        return first.reshape(-1), [first.shape[1]] * len(self._rows)


def _first(found: Array | None) -> Array | None:
    """The choices that are kept."""
    return None if found is None else found[:, :TOP]
