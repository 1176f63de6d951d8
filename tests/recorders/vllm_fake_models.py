"""Stand-ins for vLLM's models: a draft and its target. Needs torch, not vLLM."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.recorders.serving_fakes import HIDDEN, KEPT, OFFSET, VOCAB, WRONG, target_logits


class Draft(nn.Module):
    """An EAGLE-3 head in vLLM's form."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.lm_head = nn.Linear(HIDDEN, KEPT, bias=False)
        self.draft_id_to_target_id = nn.Parameter(torch.full((KEPT,), OFFSET), requires_grad=False)
        self.logits_processor = _Head()

    def forward(self, input_ids: Tensor, positions: Tensor, hidden_states: Tensor) -> Tensor:
        """Reads tokens; this draft needs nothing else."""
        return input_ids

    def compute_logits(self, read: Tensor) -> Tensor:
        """[B, V] in the target's vocabulary, as vLLM scatters them."""
        raw: Tensor = self.logits_processor(self.lm_head, read)
        mapped = raw.new_full((len(read), VOCAB), -torch.inf)
        mapped[:, OFFSET : OFFSET + KEPT] = raw
        return mapped


class _Head(nn.Module):
    def forward(self, _lm_head: Any, read: Tensor) -> Tensor:
        wanted = torch.where(read % WRONG == 0, read + 2, read + 1) - OFFSET
        wanted = wanted.clamp(0, KEPT - 1).to(torch.int64)
        if read.device.type == "meta":
            return torch.zeros(len(read), KEPT, device="meta")
        return torch.nn.functional.one_hot(wanted, KEPT).float() * 8


class Target(nn.Module):
    """The model whose text is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.aux_hidden_state_layers = (2, 4, 5)  # type: ignore[assignment]
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """[R, V] of the tokens read."""
        return target_logits(hidden_states)
