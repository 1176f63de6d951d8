"""A proposer of one's own for vLLM's ``custom_class``. Imports no engine."""

from __future__ import annotations

from typing import Any


class Repeat:
    """A proposer of one's own (``custom_class``): what followed the last token where it stood before."""

    def __init__(self, vllm_config: Any) -> None:
        self._length = vllm_config.speculative_config.num_speculative_tokens

    def propose(self, sampled: Any, num_tokens: Any, token_ids: Any, **_: Any) -> list[list[int]]:
        """[B] lists; empty where the last token is new, or nothing was sampled."""
        found = []
        for own, size, row in zip(sampled, num_tokens, token_ids):
            text = row[:size].tolist()
            before = [at for at, token in enumerate(text[:-1]) if token == text[-1]]
            found.append(text[before[-1] + 1 :][: self._length] if own and before else [])
        return found

    def load_model(self, *_: Any, **__: Any) -> None:
        """Nothing to load."""
