"""What SGLang is made to do: one line per scenario, by name. Imports no engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One engine, one batch of requests."""

    speculative: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of Engine."""
    draft: str | None = None
    """Folder of the draft, beside the target's."""
    environment: Mapping[str, str] = field(default_factory=dict)
    num_prompts: int = 2
    num_tokens: int = 16
    patch: str | None = None
    """Name of a function of the child that changes the engine before it starts."""
    is_recorded: bool = True


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

SCENARIOS: Mapping[str, Scenario] = {
    "chain": Scenario(speculative=CHAIN, draft="eagle3"),
    "plain": Scenario(is_recorded=False),
    "chain-unrecorded": Scenario(speculative=CHAIN, draft="eagle3", is_recorded=False),
    "tree": Scenario(speculative=TREE, draft="eagle3"),
}


def prompts(scenario: Scenario) -> list[str]:
    """Texts for a scenario."""
    from spectrace_demo import prompts as bundled

    return list(bundled())[: scenario.num_prompts]


def trace_of(folder: Path) -> Path:
    """The one trace in a folder."""
    found = sorted(folder.glob("*.spectrace"))
    assert len(found) == 1, f"{folder}: {len(found)} traces"
    return found[0]
