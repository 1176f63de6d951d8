"""The draft over a whole text at once, fed with true tokens and states, and drafting on from any token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spectrace_eagle3.cache import DraftCache
from spectrace_eagle3.draft import Draft
from spectrace_eagle3.variants import Variant


class ForcedRows:
    """The draft after it has read a text from beginning to end.

    Args:
        draft: the draft, as it is to be run.
        variant: how tokens and positions are chosen.
        ids: of the text.
        taps: [taps, tokens, hidden_size], one more than the last row needs where the text goes on.
    """

    def __init__(self, draft: Draft, variant: Variant, ids: Sequence[int], taps: Tensor) -> None:
        self.token_shift = variant.token_shift
        self._head, self._shift = draft.head, variant.position_shift
        self._device = draft.head.fc.weight.device
        n = len(ids) - 1
        self._cache = DraftCache(draft.head.config.num_layers)
        fused = draft.head.fuse(taps[:, :n].to(self._device))  # [n, hidden_size]
        tokens = torch.tensor(ids[variant.token_shift :][:n])
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        self._logits, self._states = self._run(tokens, fused, torch.arange(n), causal)

    def _run(self, tokens: Tensor, states: Tensor, positions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        tokens, positions, mask = (x.to(self._device) for x in (tokens, positions, mask))
        logits, out = self._head(tokens, states, positions, mask, self._cache)
        return logits, out

    def unrolled(self, starts: Tensor, feeds: Sequence[Tensor]) -> list[Tensor]:
        """Drafts on from some rows at once.

        Args:
            starts: [m] rows; each sees the rows up to its own, and its own chain.
            feeds: per depth after the first, [m] tokens to read.

        Returns:
            Per depth, logits [m, draft_vocab_size] over raw ids.
        """
        past, m = self._cache.length, len(starts)
        mask = torch.arange(past) <= starts.unsqueeze(1)  # [m, past]
        states = self._states[starts]
        found = [self._logits[starts].float().cpu()]
        for depth, tokens in enumerate(feeds, 1):
            mask = torch.cat((mask, torch.eye(m, dtype=torch.bool)), dim=1)  # [m, past + depth * m]
            logits, states = self._run(tokens, states, starts + depth + self._shift, mask)
            found.append(logits.float().cpu())
        self._cache.crop(past)
        return found
