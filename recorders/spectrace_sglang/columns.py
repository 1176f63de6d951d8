"""What the draft thought of each node, as columns: first tokens by their seeds, the others by its rows.

numpy only; the arrays are those of tree.py. Knows nothing of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from spectrace_serving.reduction import TOP
from spectrace_serving.rows import flat
from spectrace_transformers.reduction import Array, log_normaliser

if TYPE_CHECKING:
    from spectrace_sglang.steps import Arrived, Row


class DraftColumns:
    """The nodes of some rows, and where in the draft's rows each comes from.

    Args:
        batch: with the draft's own values.
        rows: all with a seed.
    """

    def __init__(self, batch: Arrived, rows: Sequence[Row]) -> None:
        assert batch.drafts is not None
        assert batch.event.proposed is not None
        self._arrays, self._rows = batch.drafts, rows
        self._topk = batch.event.proposed.topk
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
        fields: dict[str, Any] = {"draft_ids": (self._of_nodes("raw"), self._lengths)}
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
