"""Faults of the real engine, made by editing the draft's checkpoint, and what each must be named.

Nothing here touches SGLang or a trace. How a checkpoint is edited: tests/recorders/checkpoint_faults.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.recorders.checkpoint_faults import LAYER_IDS, Edit, Tensors, descending, without
from tests.recorders.sglang.scenarios import CHAIN, Scenario


def _permuted_layers(tensors: Tensors, config: dict[str, Any]) -> None:
    """A head trained on the same layers in descending order; SGLang joins them in the order of the layers."""
    config["eagle_config"] = {LAYER_IDS: [layer - 1 for layer in reversed(config.pop(LAYER_IDS))]}
    descending(tensors)


FAULTS: Mapping[str, tuple[Edit, str]] = {
    "map-missing": (without("d2t"), "vocab-map/missing"),
    "layers-permuted": (_permuted_layers, "tap-form/order"),
    "midlayer-missing": (without("midlayer"), "weights/not-loaded"),
}


def scenario(name: str) -> Scenario:
    """The run of a fault: few steps, since each of these faults shows in the header or in every step."""
    return Scenario(speculative=CHAIN, draft=f"eagle3-{name}", num_tokens=12)
