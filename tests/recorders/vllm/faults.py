"""Faults of the real engine, made by editing the draft's checkpoint or a setting: what each must be named.

Nothing here touches vLLM or a trace. How a checkpoint is edited: tests/recorders/checkpoint_faults.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.recorders.checkpoint_faults import LAYER_IDS, Edit, Tensors, descending, without
from tests.recorders.vllm.scenarios import Scenario, model


def _config(**values: Any) -> Edit:
    """Changes settings in config.json."""
    return lambda _tensors, config: config.update(values)


def _stale_map(tensors: Tensors, _config: dict[str, Any]) -> None:
    """The map of another training run: as long, with other ids."""
    tensors["d2t"] = np.maximum(tensors["d2t"] - 7, 0)


def _zero_head(tensors: Tensors, _config: dict[str, Any]) -> None:
    tensors["lm_head.weight"] = np.zeros_like(tensors["lm_head.weight"])


def _not_a_number(tensors: Tensors, _config: dict[str, Any]) -> None:
    """One overflown weight."""
    tensors["norm.weight"][3] = np.nan


def _layers_as_outputs(_tensors: Tensors, config: dict[str, Any]) -> None:
    """The same layers as SpecForge and SGLang write them: outputs, nested."""
    config["eagle_config"] = {LAYER_IDS: [layer - 1 for layer in config.pop(LAYER_IDS)]}


def _permuted_layers(tensors: Tensors, config: dict[str, Any]) -> None:
    """A head trained on the same layers in descending order; vLLM sorts them."""
    config[LAYER_IDS] = config[LAYER_IDS][::-1]
    descending(tensors)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault, and the id of the finding that names it."""

    edit: Edit
    finding: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of speculative_config."""
    repeats: int = 1


FAULTS: Mapping[str, Fault] = {
    "map-missing": Fault(edit=without("d2t"), finding="vocab-map/missing"),
    "map-stale": Fault(edit=_stale_map, finding="vocab-map/stale"),
    "layers-as-outputs": Fault(edit=_layers_as_outputs, finding="tap-layer/shifted"),
    "layers-permuted": Fault(edit=_permuted_layers, finding="tap-form/order"),
    "head-missing": Fault(edit=without("lm_head"), finding="draft-head/overwritten"),
    "head-zero": Fault(edit=_zero_head, finding="draft-head/constant"),
    "midlayer-missing": Fault(edit=without("midlayer"), finding="weights/not-loaded"),
    "feedback-normed": Fault(edit=_config(norm_output=True), finding="tap-form/feedback-norm"),
    "not-a-number": Fault(edit=_not_a_number, finding="nonfinite/values"),
    "short-draft": Fault(edit=_config(), finding="window/gated", settings={"max_model_len": 112}, repeats=5),
}


def scenario(name: str) -> Scenario:
    """The run of a fault: enough steps for a statistical verdict."""
    fault = FAULTS[name]
    return Scenario(
        speculative=model(f"eagle3-{name}", "eagle3", **fault.settings),
        sampling={"max_tokens": 48},
        num_prompts=8,
        repeats=fault.repeats,
    )
