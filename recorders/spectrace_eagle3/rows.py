"""The draft while it runs: which rows it has read in this step, and which of its cache each may see.

Row 0 is the last committed token with the target's state before it; each further row reads a node of the
proposal with the state that its parent's row gave. Owns cache, mask and positions; does not choose tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spectrace_eagle3.cache import DraftCache
from spectrace_eagle3.faults import Faults
from spectrace_eagle3.head import Eagle3Head


@dataclass(slots=True)
class Node:
    """One proposed token."""

    draft_id: int
    parent: int
    """Index of the parent among the nodes, -1 for the root."""
    depth: int
    """From 0."""
    source: int
    """Row whose distribution it comes from."""
    score: float = 0.0
    """Sum of log q along the path."""
    row: int = -1
    """Row that read it, -1 for none."""


class DraftRows:
    """The draft's side of one sequence.

    Args:
        head: the draft network.
        table: [draft_vocab_size] target id of each raw id.
        faults: what to do wrong on purpose.
    """

    def __init__(self, head: Eagle3Head, table: Tensor, faults: Faults) -> None:
        self._head = head
        self._table = table
        self._faults = faults
        self._cache = DraftCache(head.config.num_layers)
        self._device = head.fc.weight.device
        self.committed = 0
        """Rows of the cache that belong to committed tokens."""
        self.logits: list[Tensor] = []
        """Per row of this step, [draft_vocab_size] single precision."""
        self.positions: list[int] = []
        """Per row, where it was run."""
        self.input_rms: list[float] = []
        """Per depth, RMS of the states read there."""
        self.token_ids: list[int] = []
        """Per depth, the last token read there."""
        self._states: list[Tensor] = []

    @torch.no_grad()
    def begin(self, token_ids: Sequence[int], taps: Tensor, first_position: int) -> None:
        """Forgets the last proposal and reads what was committed since.

        Args:
            token_ids: [m] the tokens after each of the positions.
            taps: [taps, m, target_hidden_size], the target's states at the positions.
            first_position: index of the first; the others follow.
        """
        if not self._faults.keep_draft_kv:
            self._cache.crop(self.committed)
        past, m = self._cache.length, len(token_ids)
        states = self._head.fuse(taps.to(self._device))  # [m, hidden_size]
        positions = list(range(first_position, first_position + m))
        mask = torch.ones(m, past + m, dtype=torch.bool).tril(past)
        logits, out = self._run(token_ids, states, positions, mask)
        self.committed = past + m
        self.logits, self._states = [logits[-1]], [out[-1]]
        self.positions = positions[-1:]
        self.input_rms = [_rms(states[-1])]
        self.token_ids = [token_ids[-1]]

    @torch.no_grad()
    def read(self, indices: Sequence[int], nodes: Sequence[Node]) -> None:
        """Reads some nodes of one depth, all in one run.

        Args:
            indices: which.
            nodes: all nodes so far.
        """
        chosen = [nodes[index] for index in indices]
        past, m = self._cache.length, len(chosen)
        mask = torch.zeros(m, past + m, dtype=torch.bool)
        mask[:, : self.committed] = True
        for i, node in enumerate(chosen):
            mask[i, past + i] = True
            mask[i, [self.committed + row - 1 for row in _rows_above(node, nodes)]] = True
        states = torch.stack([self._states[node.source] for node in chosen])  # [m, hidden_size]
        position = self.positions[0] + 1 + chosen[0].depth + self._faults.position_shift
        token_ids = self.target_ids(chosen)
        logits, out = self._run(token_ids, states, [position] * m, mask)
        for i, node in enumerate(chosen):
            node.row = len(self.logits)
            self.logits.append(logits[i])
            self._states.append(out[i])
            self.positions.append(position)
        self.input_rms.append(_rms(states))
        self.token_ids.append(token_ids[-1])

    def target_ids(self, nodes: Sequence[Node]) -> list[int]:
        """[K] the nodes in the target's vocabulary."""
        ids: list[int] = self._table[[node.draft_id for node in nodes]].tolist()
        return ids

    def _run(
        self, token_ids: Sequence[int], states: Tensor, positions: Sequence[int], mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """[n, draft_vocab_size] logits and [n, hidden_size] states."""
        logits, out = self._head(
            torch.tensor(token_ids, device=self._device),
            states,
            torch.tensor(positions, device=self._device),
            mask.to(self._device),
            self._cache,
        )
        return logits.float(), out


def _rows_above(node: Node, nodes: Sequence[Node]) -> list[int]:
    """Rows that read the ancestors of a node."""
    rows = []
    while node.parent >= 0:
        node = nodes[node.parent]
        rows.append(node.row)
    return rows


def _rms(states: Tensor) -> float:
    return float(states.float().pow(2).mean().sqrt())
