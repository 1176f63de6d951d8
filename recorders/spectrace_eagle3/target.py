"""The target: one sequence, its cache, and the hidden states that the draft is fed with.

Works with any decoder-only model of transformers whose cache holds keys and values of every token. Knows
trees only as an attention mask. Never changes the model; hooks are taken off by `close`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from spectrace.errors import UnsupportedEngine, UsageError
from spectrace_eagle3.faults import HEALTHY, Faults
from spectrace_transformers.taps import find_layers, hook_boundaries

logger = logging.getLogger("spectrace")


class Forward(NamedTuple):
    """What one run over n tokens gave."""

    logits: Tensor
    """[n, vocab_size] single precision; only the last row where only that was asked for."""
    taps: Tensor
    """[taps, n, hidden_size], in the order of the boundaries."""


class Target:
    """A model, run token by token or over a tree.

    Args:
        model: a causal language model of transformers.
        boundaries: k of B(k) to capture, in the draft's order.
        faults: what to do wrong on purpose.
    """

    def __init__(self, model: Any, boundaries: Sequence[int], faults: Faults = HEALTHY) -> None:
        layers = find_layers(model)
        if layers is None:
            raise UnsupportedEngine("eagle3", f"no list of decoder layers in {type(model).__name__}")
        self.model = model
        self.device = model.get_input_embeddings().weight.device
        self._boundaries = tuple(k + faults.tap_shift for k in boundaries)
        self._norm = final_norm(model) if faults.normed_taps else None
        self._seen: dict[int, Tensor] = {}
        self._handles = hook_boundaries(layers, sorted(set(self._boundaries)), self._see)
        parameters = inspect.signature(model.forward).parameters
        # One name up to transformers 5.23, another from 5.24 on.
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._can_keep = "logits_to_keep" in parameters
        self._cache: Any = None

    def close(self) -> None:
        """Takes the hooks off the model."""
        for handle in self._handles:
            handle.remove()

    def _see(self, boundary: int, hidden: Tensor) -> None:
        self._seen[boundary] = hidden

    def check(self, prompt_ids: Sequence[int], max_new_tokens: int) -> None:
        """Refuses a prompt that cannot be read; says so where a text will pass the model's limit.

        Raises:
            UsageError: there is no token, or one that the model lacks.
        """
        size = len(self.model.get_input_embeddings().weight)
        if not prompt_ids:
            raise UsageError("prompt: has no tokens")
        wrong = next((token for token in prompt_ids if not 0 <= token < size), None)
        if wrong is not None:
            raise UsageError(f"prompt: there is no token {wrong:,}; the target has {size:,}")
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        longest = len(prompt_ids) + max_new_tokens
        if limit is not None and longest > limit:
            words = "a text of %s tokens passes the target's limit of %s; what follows it is worth little"
            logger.warning(words, f"{longest:,}", f"{limit:,}")

    # --- the cache ---

    def reset(self) -> None:
        """Begins a new sequence."""
        self._cache = DynamicCache()

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return int(self._cache.get_seq_length())

    def keep(self, rows: Sequence[int]) -> None:
        """Leaves only these rows in the cache, in this order."""
        index = torch.tensor(rows, device=self.device)
        for layer in self._cache.layers:
            if layer.is_initialized:
                layer.keys = layer.keys.index_select(2, index.to(layer.keys.device))  # [1, heads, rows, d]
                layer.values = layer.values.index_select(2, index.to(layer.values.device))

    # --- running ---

    @torch.no_grad()
    def run(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        ancestors: Tensor | None = None,
        *,
        last_only: bool = False,
    ) -> Forward:
        """Runs the model over n tokens that follow what is cached.

        Args:
            ids: [n].
            positions: [n].
            ancestors: [n, n] bool, which of these tokens each may see, itself included; None is a chain.
            last_only: give the last row of logits only.
        """
        options: dict[str, Any] = {self._cache_name: self._cache, "use_cache": True}
        if ancestors is not None:
            options["attention_mask"] = self._mask(ancestors)
        if last_only and self._can_keep:
            options["logits_to_keep"] = 1
        self._seen.clear()
        try:
            output = self.model(
                input_ids=torch.tensor([ids], device=self.device),
                position_ids=torch.tensor([positions], device=self.device),
                **options,
            )
        except IndexError as error:  # a table of positions has no more rows
            what = f"the target has no position {max(positions):,}: the text is longer than it can read"
            raise UnsupportedEngine("eagle3", what) from error
        self._check_cache()
        logits = output.logits[0].float()  # [n, vocab_size]
        states = [self._seen[k][0].to(self.device) for k in self._boundaries]  # [n, hidden_size] each
        if self._norm is not None:
            states = [self._norm(state) for state in states]
        taps = torch.stack(states) if states else logits.new_zeros(0, len(ids), 0)
        return Forward(logits[-1:] if last_only else logits, taps)

    def _mask(self, ancestors: Tensor) -> Tensor:
        """What is added to attention scores, [1, 1, n, past + n]: everything cached may be seen."""
        if "flash" in str(getattr(self.model.config, "_attn_implementation", "")):
            raise UnsupportedEngine(
                "eagle3", "flash attention runs no tree; load the target with sdpa or eager"
            )
        n, past = len(ancestors), self.length
        window = getattr(self.model.config.get_text_config(), "sliding_window", None)
        if window is not None and past + n > window:
            what = f"a tree beyond the target's sliding window of {window:,} tokens; draft a chain there"
            raise UnsupportedEngine("eagle3", what)
        dtype = self.model.dtype
        mask = torch.zeros(1, 1, n, past + n, dtype=dtype, device=self.device)
        mask[0, 0, :, past:].masked_fill_(~ancestors.to(self.device), torch.finfo(dtype).min)
        return mask

    def _check_cache(self) -> None:
        for layer in self._cache.layers:
            if layer.is_initialized and getattr(layer, "keys", None) is None:
                what = f"{type(self.model).__name__} keeps a state that cannot be rolled back token by token"
                raise UnsupportedEngine("eagle3", what)


def final_norm(model: Any) -> Any:
    """The norm between the last layer and the LM head."""
    decoder = model.get_decoder()
    for name in ("norm", "final_layernorm", "ln_f"):
        if hasattr(decoder, name):
            return getattr(decoder, name)
    raise UnsupportedEngine("eagle3", f"no final norm was found in {type(decoder).__name__}")
