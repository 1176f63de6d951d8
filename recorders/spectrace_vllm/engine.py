"""What is asked of a live worker of vLLM, by its names: models, settings, what the draft is fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from spectrace_transformers.reduction import Array

_METHODS = {
    "ngram": "ngram", "ngram_gpu": "ngram", "draft_model": "draft_model", "eagle": "eagle",
    "eagle3": "eagle3", "mtp": "mtp", "medusa": "medusa", "dflash": "dflash", "suffix": "suffix",
}  # fmt: skip


class Engine:
    """What is asked of a live worker, by the names of this version of vLLM.

    Args:
        runner: the model runner.
        drafter: its proposer, None without speculation.
        kind: V1 or V2.
    """

    def __init__(self, runner: Any, drafter: Any, kind: str) -> None:
        self.runner = runner
        self.drafter = drafter
        self.kind = kind
        self.config = runner.vllm_config
        self.speculative = getattr(self.config, "speculative_config", None)
        self.target = unwrapped(getattr(runner, "model", None))
        self.draft = unwrapped(getattr(drafter, "model", None))
        self.draft_config = getattr(getattr(self.speculative, "draft_model_config", None), "hf_config", None)
        self.method = _METHODS.get(str(getattr(self.speculative, "method", None)), "other")
        self.device = torch.device(getattr(runner, "device", "cpu"))

    @property
    def is_eager(self) -> bool:
        """No graph is captured: so it was asked for, or this device has none.

        Source: vLLM 0.32.0 config/vllm.py, ``VllmConfig.__post_init__``: ``cudagraph_mode`` is NONE there.
        """
        mode = getattr(getattr(self.config, "compilation_config", None), "cudagraph_mode", None)
        return bool(self.config.model_config.enforce_eager) or getattr(mode, "name", None) == "NONE"

    @property
    def feeds_last_state(self) -> bool:
        """The draft is fed what the target returns, after its final norm, and nothing else.

        Source: vLLM 0.32.0 v1/worker/gpu_model_runner.py, ``propose_draft_token_ids``; a target with
        ``get_mtp_target_hidden_states`` hands over something of its own.
        """
        is_own = self.method == "mtp" and hasattr(self.target, "get_mtp_target_hidden_states")
        return self.method in ("eagle", "mtp", "medusa") and not is_own

    @property
    def block(self) -> int | None:
        """Rows of a request in a draft's one forward over a block, of which the last are drafted from.

        Source: vLLM 0.32.0 v1/spec_decode/dflash.py and v1/worker/gpu/spec_decode/dspark/speculator.py: the
        last committed token comes first; DSpark drafts from its row too.
        """
        spec = self.speculative
        if spec is None or getattr(spec, "method", None) not in ("dflash", "dspark"):
            return None
        return int(getattr(self.drafter, "num_query_per_req", spec.num_speculative_tokens + 1))

    @property
    def boundaries(self) -> tuple[int, ...] | None:
        """The k of B(k) of the states that the draft is fed, as the target itself holds them.

        Source: vLLM 0.32.0 model_executor/models/interfaces.py, ``EagleModelMixin``: id L is taken before
        layer L runs, ids are sorted and given once.
        """
        for holder in (getattr(self.target, "model", None), self.target):
            layers = getattr(holder, "aux_hidden_state_layers", None)
            if layers:
                return tuple(int(layer) for layer in layers)
        if self.feeds_last_state:
            return (int(self.config.model_config.get_total_num_hidden_layers()),)
        return None

    @property
    def has_own_tokenizer(self) -> bool:
        """The draft's tokens are another tokenizer's, mapped by their texts (``use_heterogeneous_vocab``)."""
        return getattr(self.drafter, "vocab_mapping", None) is not None

    @property
    def map(self) -> Tensor | None:
        """[draft_vocab_size] offsets, None where both vocabularies are one."""
        found = getattr(self.draft, "draft_id_to_target_id", None)
        return found if isinstance(found, Tensor) else None

    @property
    def target_ids(self) -> Array | None:
        """[draft_vocab_size] target id of each raw id, -1 for none; None where both vocabularies are one."""
        if self.has_own_tokenizer:
            known: Array = self.drafter.vocab_mapping.draft_to_target_ids.detach().cpu().numpy()
            return known
        if self.map is None:
            return None
        offsets: Array = self.map.detach().cpu().numpy()
        return np.arange(len(offsets)) + offsets

    def tokenizer(self) -> Any:
        """The target's.

        Raises:
            Exception: whatever vLLM raises where it is not on this machine.
        """
        from vllm.tokenizers import cached_tokenizer_from_config

        return cached_tokenizer_from_config(self.config.model_config)

    @property
    def is_draft_greedy(self) -> bool:
        """The draft always takes its first choice, and the verifier takes its word for certain."""
        return getattr(self.speculative, "draft_sample_method", "greedy") == "greedy"


def unwrapped(model: Any) -> Any:
    """A model without the wrapper that replays graphs."""
    return model.unwrap() if callable(getattr(model, "unwrap", None)) else model
