"""What the stand-ins of both engines share: their models' sizes, and what the target says.

The target says t + 1 after token t, modulo the vocabulary; a draft says the same in its own vocabulary but
for multiples of `WRONG`. Needs torch, and no engine.
"""

from __future__ import annotations

import torch
from torch import Tensor

VOCAB, KEPT, HIDDEN, LAYERS, WRONG = 64, 48, 32, 8, 5
EOS = 63
OFFSET = 4
"""The draft's vocabulary is the target's without its first tokens."""


def target_logits(read: Tensor) -> Tensor:
    """[R, V] of the tokens read."""
    if read.device.type == "meta":
        return torch.zeros(len(read), VOCAB, device="meta")
    wanted = torch.where(read == EOS - 1, EOS, (read + 1) % VOCAB).to(torch.int64)
    return torch.nn.functional.one_hot(wanted, VOCAB).float() * 10 + torch.arange(VOCAB) / VOCAB
