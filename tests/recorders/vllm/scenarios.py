"""What the engine is made to do: one line per scenario, by name. Imports no engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

K = 3
"""Draft tokens a step."""
NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": K,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One engine, one batch of requests."""

    speculative: Mapping[str, Any] | None = None
    """vLLM's speculative_config; names of models are folders beside each other."""
    target: str = "target"
    engine: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the usual arguments of LLM."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """What differs from greedy sampling of 32 tokens."""
    environment: Mapping[str, str] = field(default_factory=dict)
    num_prompts: int = 6
    repeats: int = 1
    """How often each prompt is written in a row, to make it long."""
    patch: str | None = None
    """Name of a function of the child that changes the engine before it starts."""
    is_recorded: bool = True


def model(name: str, method: str, **settings: Any) -> dict[str, Any]:
    """A speculative_config with a draft model."""
    return {"method": method, "model": name, "num_speculative_tokens": K, **settings}


_EAGLE3 = model("eagle3", "eagle3")

SCENARIOS: Mapping[str, Scenario] = {
    "plain": Scenario(is_recorded=False),
    "plain-to-the-end": Scenario(is_recorded=False, sampling={"max_tokens": 160}),
    "plain-long": Scenario(is_recorded=False, num_prompts=4, repeats=6),
    "eagle3": Scenario(speculative=_EAGLE3),
    "to-the-end": Scenario(speculative=_EAGLE3, sampling={"max_tokens": 160}),
    "draft": Scenario(speculative=model("draft", "draft_model")),
    "self": Scenario(speculative=model("target", "draft_model")),
    "ngram": Scenario(speculative=NGRAM),
    "ids": Scenario(speculative=_EAGLE3, environment={"SPECTRACE_CAPTURE": "ids"}),
    "every-third": Scenario(speculative=_EAGLE3, environment={"SPECTRACE_SAMPLE": "1/3"}),
    "flight": Scenario(speculative=_EAGLE3, environment={"SPECTRACE_MAX_BYTES": "60000"}),
    "unpadded": Scenario(speculative=model("eagle3", "eagle3", disable_padded_drafter_batch=True)),
    "chunked": Scenario(speculative=_EAGLE3, engine={"max_num_batched_tokens": 64}, num_prompts=4, repeats=6),
    "cached": Scenario(speculative=_EAGLE3, engine={"enable_prefix_caching": True}, num_prompts=4, repeats=6),
    "eagle1": Scenario(speculative=model("eagle1", "eagle")),
    "parallel": Scenario(speculative=model("parallel", "eagle3", parallel_drafting=True)),
    "custom": Scenario(speculative=model("tests.recorders.vllm.repeat.Repeat", "custom_class")),
    "plain-mimo": Scenario(target="mimo", is_recorded=False),
    "mtp": Scenario(target="mimo", speculative={"method": "mtp", "num_speculative_tokens": K}),
    "other-tokenizer": Scenario(
        speculative=model("draft-renumbered", "draft_model", use_heterogeneous_vocab=True)
    ),
    "medusa": Scenario(speculative=model("medusa", "medusa")),
    "dflash": Scenario(speculative=model("dflash", "dflash")),
    "dspark": Scenario(speculative=model("dspark", "dspark")),
    "dspark-candidates": Scenario(speculative=model("dspark", "dspark", dspark_draft_topk=64)),
    "suffix": Scenario(speculative={"method": "suffix", "num_speculative_tokens": 8}),
    "ngram-gpu": Scenario(speculative={**NGRAM, "method": "ngram_gpu"}),
    "broken-hook": Scenario(speculative=_EAGLE3, patch="break_hook"),
    "async": Scenario(speculative=_EAGLE3, patch="schedule_ahead"),
    "synthetic": Scenario(
        speculative=model(
            "eagle3",
            "eagle3",
            rejection_sample_method="synthetic",
            synthetic_acceptance_rates=[0.8, 0.5, 0.3],
        )
    ),
    # Every prompt to its end: benchmarks/engines.
    "whole-eagle3": Scenario(speculative=_EAGLE3, sampling={"max_tokens": 160}, num_prompts=8),
    "whole-draft": Scenario(
        speculative=model("draft", "draft_model"), sampling={"max_tokens": 160}, num_prompts=8
    ),
    "whole-ngram": Scenario(speculative=NGRAM, sampling={"max_tokens": 160}, num_prompts=8),
    "sampled": Scenario(
        speculative=model("target", "draft_model", draft_sample_method="probabilistic"),
        sampling={"temperature": 1.0, "seed": 7, "max_tokens": 64},
        num_prompts=8,
    ),
    "self-drawn": Scenario(
        speculative=model("target", "draft_model", draft_sample_method="probabilistic"),
        sampling={"temperature": 0.5, "seed": 7},
    ),
}

V1: tuple[str, ...] = (
    "plain", "plain-to-the-end", "plain-long", "eagle3", "to-the-end", "draft", "self", "ngram", "ids",
    "every-third", "flight", "unpadded", "chunked", "cached", "broken-hook", "eagle1", "parallel", "custom",
    "plain-mimo", "mtp", "medusa", "dflash", "other-tokenizer", "self-drawn",
)  # fmt: skip
if find_spec("arctic_inference") is not None:  # vLLM's suffix decoding is its
    V1 += ("suffix",)
V2 = (
    "plain", "eagle3", "draft", "ngram", "async", "synthetic", "eagle1", "plain-mimo", "mtp", "dflash",
    "dspark", "dspark-candidates", "ngram-gpu",
)  # fmt: skip
