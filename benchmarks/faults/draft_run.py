"""Faults of how the draft is run: tokens, positions, rotary settings, window, cache, what it feeds back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from benchmarks.faults.rig import Rig, prompts_of, swapped
from spectrace_eagle3 import decoder as loop
from spectrace_eagle3.proposal import Proposal, propose
from spectrace_eagle3.rows import DraftRows, Node

WINDOW = 8


def swapped_residual(rig: Rig, out: Path) -> None:
    """The residual of the draft's layer is the normed state where it should be the state as it comes."""
    draft = rig.draft()
    first: Any = draft.head.layers[0]
    first.norm_before_residual = not first.norm_before_residual
    rig.eagle3(out, draft=draft)


def other_theta(rig: Rig, out: Path) -> None:
    """The draft runs with the rotary base of another model."""
    draft = rig.draft()
    layer = draft.head.config.layer
    layer.rope_parameters = {**dict(layer.rope_parameters or {}), "rope_theta": 100.0}
    draft.head.rotary = LlamaRotaryEmbedding(layer)
    rig.eagle3(out, draft=draft)


def nan_head(rig: Rig, out: Path) -> None:
    """One row of the draft's LM head is no number."""
    draft = rig.draft()
    draft.head.lm_head.weight[100] = float("nan")
    rig.eagle3(out, draft=draft)


class Unshifted(DraftRows):
    """Reads token P with the state at P, where token P + 1 belongs."""

    _before: int | None = None

    def begin(self, token_ids: Sequence[int], taps: Tensor, first_position: int) -> None:
        """As ever, one token early."""
        first = token_ids[0] if self._before is None else self._before
        self._before = token_ids[-1]
        super().begin([first, *token_ids[:-1]], taps, first_position)


class Drifting(DraftRows):
    """Counts positions up from its own rows, the rejected ones too."""

    _drift = 0

    def begin(self, token_ids: Sequence[int], taps: Tensor, first_position: int) -> None:
        """As ever, later by what was rejected so far."""
        self._drift += max(0, len(self.logits) - len(token_ids)) if self.logits else 0
        super().begin(token_ids, taps, first_position + self._drift)


class Windowed(DraftRows):
    """Sees only its last rows."""

    def _run(
        self, token_ids: Sequence[int], states: Tensor, positions: Sequence[int], mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        at = torch.arange(mask.shape[1])  # row i may see itself and WINDOW - 1 rows before
        own = torch.arange(len(mask)) + mask.shape[1] - len(mask)
        near = at.unsqueeze(0) > own.unsqueeze(1) - WINDOW
        return super()._run(token_ids, states, positions, mask & near)


class Evicting(DraftRows):
    """Drops old rows from its cache, so that a window is left."""

    def begin(self, token_ids: Sequence[int], taps: Tensor, first_position: int) -> None:
        """As ever; then the oldest rows go."""
        super().begin(token_ids, taps, first_position)
        cache = self._cache
        spare = max(0, cache.length - WINDOW)
        cache._rows = [None if row is None else (row[0][:, spare:], row[1][:, spare:]) for row in cache._rows]
        cache.length -= spare
        self.committed -= spare


class OverTrimmed(DraftRows):
    """Cuts as many rows again as were rejected."""

    def begin(self, token_ids: Sequence[int], taps: Tensor, first_position: int) -> None:
        """As ever, on fewer rows."""
        if self.logits:
            self.committed = max(0, self.committed - max(0, len(self.logits) - len(token_ids)))
        super().begin(token_ids, taps, first_position)


class Poisoned(DraftRows):
    """Every fourth sequence finds garbage in the rows of its prompt."""

    made = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._is_poisoned = Poisoned.made % 4 == 3
        Poisoned.made += 1

    def begin(self, token_ids: Sequence[int], taps: Tensor, first_position: int) -> None:
        """As ever; then the prompt's rows are overwritten."""
        is_prompt = not self.logits
        super().begin(token_ids, taps, first_position)
        if self._is_poisoned and is_prompt:
            noise = torch.Generator().manual_seed(0)
            for row in self._cache._rows:
                for part in row or ():
                    part.copy_(torch.randn(part.shape, generator=noise) * 100)


class Frozen(DraftRows):
    """Runs all tokens of a proposal at the position of the first."""

    def read(self, indices: Sequence[int], nodes: Sequence[Node]) -> None:
        """As ever, one position earlier with each depth."""
        depth = nodes[indices[0]].depth
        with swapped(self, _faults=replace(self._faults, position_shift=-1 - depth)):
            super().read(indices, nodes)


def with_rows(rows: type[DraftRows]) -> Any:
    """A recording in which the draft's rows are of another class."""

    def record(rig: Rig, out: Path) -> None:
        with swapped(loop, DraftRows=rows):
            rig.eagle3(out)

    return record


def poisoned(rig: Rig, out: Path) -> None:
    """Enough requests to have some of either kind."""
    Poisoned.made = 0
    with swapped(loop, DraftRows=Poisoned):
        rig.eagle3(out, prompts=prompts_of(rig.seed, 20))


def windowed(rig: Rig, out: Path) -> None:
    """The draft sees a window that its config does not declare."""
    with swapped(loop, DraftRows=Windowed):
        rig.eagle3(out, run={"draft": {"window": WINDOW}})


def gated(rig: Rig, out: Path) -> None:
    """Beyond its longest length the drafter hands out placeholders."""
    limit = 56

    def propose_short(rows: DraftRows, plan: Any, depth: int, sampler: Any) -> Proposal:
        proposal = propose(rows, plan, depth, sampler)
        if rows.positions[0] + 2 + len(proposal.nodes) <= limit:
            return proposal
        nodes = [replace(node, draft_id=0) for node in proposal.nodes]
        return replace(proposal, nodes=nodes, target_ids=[0] * len(nodes))

    with swapped(loop, propose=propose_short):
        rig.eagle3(out, run={"draft": {"max_length": limit}})
