"""What SGLang is made to do: one line per scenario, by name. Imports no engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One engine, one batch of requests."""

    target: str = "target"
    """Folder of the target."""
    speculative: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of Engine."""
    draft: str | None = None
    """Folder of the draft, beside the target's."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the usual arguments of Engine."""
    environment: Mapping[str, str] = field(default_factory=dict)
    num_prompts: int = 2
    num_tokens: int = 16
    repeats: int = 1
    """How often each prompt is written in a row, to make it long."""
    patch: str | None = None
    """Name of a function of the child that changes the engine before it starts."""
    is_recorded: bool = True
    is_spawned: bool = False
    """SGLang's processes are started anew, as it does by itself: two more imports."""


def eagle3(topk: int, steps: int, nodes: int) -> dict[str, Any]:
    """Arguments for EAGLE-3; SGLang counts the root among the draft tokens."""
    return {
        "speculative_algorithm": "EAGLE3",
        "speculative_eagle_topk": topk,
        "speculative_num_steps": steps,
        "speculative_num_draft_tokens": nodes + 1,
    }


CHAIN = eagle3(1, 3, 3)
TREE = eagle3(2, 3, 7)
NGRAM = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4}
EAGLE = {**CHAIN, "speculative_algorithm": "EAGLE"}
STANDALONE = {**CHAIN, "speculative_algorithm": "STANDALONE"}

SCENARIOS: Mapping[str, Scenario] = {
    "chain": Scenario(speculative=CHAIN, draft="eagle3"),
    "plain": Scenario(is_recorded=False, num_prompts=6, num_tokens=40),
    "chain-unrecorded": Scenario(speculative=CHAIN, draft="eagle3", is_recorded=False),
    "tree": Scenario(speculative=TREE, draft="eagle3", num_prompts=4, num_tokens=32),
    "long": Scenario(speculative=CHAIN, draft="eagle3", num_prompts=6, num_tokens=40),
    "overlap": Scenario(speculative=CHAIN, draft="eagle3", engine={"disable_overlap_schedule": False}),
    "chunked": Scenario(
        speculative=CHAIN,
        draft="eagle3",
        engine={"chunked_prefill_size": 32, "disable_radix_cache": False},
        num_tokens=6,
        repeats=4,
    ),
    "ids": Scenario(speculative=TREE, draft="eagle3", environment={"SPECTRACE_CAPTURE": "ids"}, num_tokens=6),
    "broken-hook": Scenario(speculative=CHAIN, draft="eagle3", patch="break_hook", num_tokens=6),
    "spawned": Scenario(speculative=CHAIN, draft="eagle3", num_tokens=6, is_spawned=True),
    "standalone": Scenario(speculative=STANDALONE, draft="draft", num_tokens=8),
    "eagle1": Scenario(speculative=EAGLE, draft="eagle1-sglang", num_tokens=12),
    "plain-mimo": Scenario(target="mimo", is_recorded=False, num_prompts=6, num_tokens=40),
    "mtp": Scenario(target="mimo", speculative=EAGLE, draft="mimo", num_tokens=12),
    "ngram": Scenario(speculative=NGRAM, num_prompts=4, num_tokens=24),
    # Every prompt to its end: benchmarks/engines.
    "whole-eagle3": Scenario(speculative=CHAIN, draft="eagle3", num_prompts=8, num_tokens=160),
    "whole-draft": Scenario(speculative=STANDALONE, draft="draft", num_prompts=8, num_tokens=160),
    "whole-ngram": Scenario(speculative=NGRAM, num_prompts=8, num_tokens=160),
}
TESTED = tuple(name for name in SCENARIOS if not name.startswith("whole-"))
"""What the tests run."""
