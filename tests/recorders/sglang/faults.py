"""Faults of the real engine, made by editing the draft's checkpoint, and what each must be named.

Nothing here touches SGLang or a trace. How a checkpoint is edited is told in tests/recorders/vllm/faults.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.recorders.sglang.scenarios import CHAIN, Scenario
from tests.recorders.vllm.faults import LAYER_IDS, Edit, Tensors, without


def _inputs_as_outputs(_tensors: Tensors, config: dict[str, Any]) -> None:
    """Layers as vLLM and speculators count them, where SGLang takes them for outputs."""
    config["eagle_config"] = {LAYER_IDS: config.pop(LAYER_IDS)}


FAULTS: Mapping[str, tuple[Edit, str]] = {
    "map-missing": (without("d2t"), "vocab-map/missing"),
    "inputs-as-outputs": (_inputs_as_outputs, "tap-layer/shifted"),
    "midlayer-missing": (without("midlayer"), "weights/not-loaded"),
}


def scenario(name: str) -> Scenario:
    """The run of a fault: enough steps for a statistical verdict."""
    return Scenario(speculative=CHAIN, draft=f"eagle3-{name}", num_prompts=8, num_tokens=40)
