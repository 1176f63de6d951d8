"""What is asked of a live scheduler of SGLang, by its names: models, settings, what the draft is fed."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spectrace_transformers.reduction import Array

_METHODS = {
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
}
_SPEC_UTILS = "sglang.srt.speculative.spec_utils"


class Engine:
    """What is asked of a live scheduler, by the names of this version of SGLang.

    Args:
        scheduler: with its models loaded.
    """

    def __init__(self, scheduler: Any) -> None:
        self.arguments = scheduler.server_args
        self.tokenizer = getattr(scheduler, "tokenizer", None)
        self.worker = getattr(scheduler, "draft_worker", None)
        """Runs the rounds; None without speculation."""
        self.target_runner = scheduler.tp_worker.model_runner
        drafter = getattr(self.worker, "draft_worker", None)
        self.draft_runner = getattr(drafter, "draft_runner", None)
        """None where nothing but a lookup proposes."""
        self._drafter = drafter
        self.target = self.target_runner.model
        self.draft = getattr(self.draft_runner, "model", None)
        self.config = self.target_runner.model_config
        self.draft_config = getattr(self.draft_runner, "model_config", None)
        self.algorithm = str(getattr(getattr(scheduler, "spec_algorithm", None), "name", None))
        self.method = _METHODS.get(self.algorithm, "other")
        if self.method == "eagle" and self._is_part_of_target:
            self.method = "mtp"
        self.device = torch.device(self.target_runner.device)

    def setting(self, name: str) -> Any:
        """One of SGLang's settings; None for one that this version does not have."""
        return getattr(self.arguments, name, None)

    @property
    def is_eager(self) -> bool:
        """No graph is captured: so it was asked for, or this device has none.

        Source: SGLang 0.5.23 srt/model_executor/model_runner_components/cuda_graph_setup.py: a CPU captures
        where ``enable_torch_compile`` is set, and nothing otherwise.
        """
        is_plain_cpu = self.device.type == "cpu" and not self.setting("enable_torch_compile")
        return bool(self.setting("disable_cuda_graph")) or is_plain_cpu

    @property
    def _is_part_of_target(self) -> bool:
        """The draft is a layer of the target's own, which SGLang runs as EAGLE; told by its class."""
        classes = getattr(getattr(self.draft_config, "hf_config", None), "architectures", None) or ()
        return any(word in str(name) for name in classes for word in ("MTP", "NextN"))

    @property
    def topk(self) -> int:
        """Choices looked at after each token: 1 makes chains."""
        return int(getattr(self.worker, "topk", None) or 1)

    @property
    def num_steps(self) -> int | None:
        """Longest path of a proposal, in tokens."""
        return getattr(self.worker, "speculative_num_steps", None)

    @property
    def num_nodes(self) -> int | None:
        """K: SGLang counts the root among the draft tokens."""
        count = getattr(self.worker, "speculative_num_draft_tokens", None)
        return None if count is None else int(count) - 1

    @property
    def boundaries(self) -> tuple[int, ...] | None:
        """The k of B(k) of the states that the draft is fed, as the target itself holds them.

        Source: SGLang 0.5.23 srt/models/llama.py, ``LlamaModel.forward``: number L is taken before layer L
        runs, in the order of the layers and once each.
        """
        model = getattr(self.target, "language_model", self.target)
        if self.method == "eagle3":
            for holder in (getattr(model, "model", None), model):
                layers = getattr(holder, "layers_to_capture", None)
                if layers:
                    return tuple(sorted({int(layer) for layer in layers}))
        if self.method in ("eagle", "mtp"):
            return (int(self.config.num_hidden_layers),)
        return None

    @property
    def target_ids(self) -> Array | None:
        """[draft_vocab_size] target id of each raw id; None where both vocabularies are one."""
        table = getattr(self._drafter, "hot_token_id", None)
        if not isinstance(table, Tensor) or table.dim() != 1:
            return None
        found: Array = table.detach().to("cpu", torch.int64).numpy().astype(np.int64)
        return found

    @property
    def tells_raw_ids(self) -> bool:
        """Whether a target id has one raw id by the map."""
        if self.draft is None:
            return False
        targets = self.target_ids
        return targets is None or len(np.unique(targets)) == len(targets)

    @property
    def is_always_greedy(self) -> bool:
        """Decisions are greedy whatever a request asks for.

        Source: SGLang 0.5.23 srt/speculative/eagle_utils.py, ``_verify_uses_greedy``.
        """
        return self.device.type in ("cpu", "xpu")

    @property
    def is_drawn(self) -> bool:
        """The draft draws its tokens from q, and does not take its first choices."""
        return bool(self.setting("speculative_use_rejection_sampling"))

    @property
    def is_simulated(self) -> bool:
        """Acceptance is drawn by chance (SGLANG_SIMULATE_ACC_LEN)."""
        length = getattr(sys.modules.get(_SPEC_UTILS), "SIMULATE_ACC_LEN", 0)
        return isinstance(length, (int, float)) and length > 0
