"""Stand-ins for SGLang's models: a draft's runner, and what it says. Needs torch, not SGLang."""

from __future__ import annotations

from types import SimpleNamespace as Bag
from typing import Any

import torch
from torch import Tensor, nn

from tests.recorders.serving_fakes import EOS, HIDDEN, KEPT, LAYERS, OFFSET, VOCAB, WRONG


class Draft(nn.Module):
    """An EAGLE-3 head in SGLang's form."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.fc = nn.Linear(3 * HIDDEN, HIDDEN, bias=False)
        self.lm_head = nn.Linear(HIDDEN, KEPT, bias=False)


class DraftRunner:
    """SGLang's ModelRunner of the draft."""

    def __init__(self, device: str) -> None:
        self.model = Draft().to(device)
        self.model_config = model_config("somebody/draft", draft_vocab_size=KEPT)

    def forward(self, forward_batch: Any) -> Any:
        """Reads tokens; the last of each request are named by `rows`, all of them where that is None."""
        hidden, fuse = forward_batch.spec_info.hidden_states, self.model.model.get_submodule("fc")
        if hidden.shape[1] != HIDDEN:
            hidden = fuse(hidden)
        read, rows = forward_batch.input_ids, forward_batch.rows
        logits = draft_logits(read if rows is None else read[rows])
        return Bag(logits_output=Bag(next_token_logits=logits, hidden_states=hidden))


def draft_logits(read: Tensor) -> Tensor:
    """[R, KEPT] of the tokens read."""
    if read.device.type == "meta":
        return torch.zeros(len(read), KEPT, device="meta")
    wrong, right = (read + 2 - OFFSET) % KEPT, (read + 1 - OFFSET) % KEPT
    first = torch.where(read % WRONG == 0, wrong, right)
    second = torch.where(read % WRONG == 0, right, wrong)
    one_hot = torch.nn.functional.one_hot
    return one_hot(first, KEPT).float() * 8 + one_hot(second, KEPT).float() * 6


def model_config(name: str, **more: Any) -> Any:
    """SGLang's ModelConfig with what the recorder asks of it."""
    hf = Bag(vocab_size=VOCAB, eos_token_id=EOS, **more)
    return Bag(
        model_path=name, revision=None, hf_config=hf, vocab_size=VOCAB, num_hidden_layers=LAYERS,
        hidden_size=HIDDEN, dtype=torch.float32, quantization=None, context_len=256,
    )  # fmt: skip
