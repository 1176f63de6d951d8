"""The target's distribution after temperature, top-k and top-p, and draws from it with a seed of its own."""

from __future__ import annotations

import torch
from torch import Tensor


class Sampler:
    """How tokens are picked.

    Args:
        temperature: 0 is greedy.
        top_k: keep only the k best choices of the target; None keeps all.
        top_p: keep only the best choices that hold this much probability; None keeps all.
        seed: of every draw.
    """

    def __init__(
        self, temperature: float = 0.0, top_k: int | None = None, top_p: float | None = None, seed: int = 0
    ) -> None:
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.seed = seed
        self._generator = torch.Generator().manual_seed(seed)

    @property
    def is_greedy(self) -> bool:
        """Nothing is drawn."""
        return self.temperature == 0

    @property
    def processors(self) -> list[str]:
        """What changes the target's logits."""
        if self.is_greedy:
            return []
        given = (self.temperature != 1, self.top_k is not None, self.top_p is not None)
        return [name for name, on in zip(("temperature", "top_k", "top_p"), given) if on]

    def processed(self, logits: Tensor) -> Tensor:
        """[n, vocab_size] logits -> the same after all processors; minus infinity is ruled out."""
        if self.is_greedy:
            return logits
        logits = logits / self.temperature
        if self.top_k is not None:
            least = logits.topk(min(self.top_k, logits.shape[-1])).values[:, -1:]  # [n, 1]
            logits = logits.masked_fill(logits < least, float("-inf"))
        if self.top_p is not None:
            values, order = logits.sort(descending=True)
            before = values.softmax(-1).cumsum(-1) - values.softmax(-1)  # probability of all better choices
            ruled_out = torch.zeros_like(before, dtype=torch.bool).scatter(1, order, before >= self.top_p)
            logits = logits.masked_fill(ruled_out, float("-inf"))
        return logits

    def pick(self, logits: Tensor) -> int:
        """The target's own token from logits [1, vocab_size] as the model gave them."""
        if self.is_greedy:
            return int(logits[0].argmax())
        return self.draw(self.processed(logits)[0].softmax(-1))

    def draw(self, probabilities: Tensor) -> int:
        """An index from weights [vocab_size], which need not sum to 1."""
        return int(torch.multinomial(probabilities.cpu(), 1, generator=self._generator))

    def coin(self) -> float:
        """A number in [0, 1)."""
        return float(torch.rand((), generator=self._generator, dtype=torch.float64))

    def draw_draft(self, logits: Tensor) -> int:
        """A raw id from the draft's logits [draft_vocab_size]: its best when greedy, else drawn."""
        if self.is_greedy:
            return int(logits.argmax())
        return self.draw((logits / self.temperature).softmax(-1))
