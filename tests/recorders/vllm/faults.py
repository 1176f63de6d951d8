"""Faults of the real engine, made by editing the draft's checkpoint or a setting: what each must be named.

Nothing here touches vLLM or a trace. Tensors are numpy arrays by their name in the checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.recorders.vllm.scenarios import Scenario, model

Tensors = dict[str, Any]
Edit = Callable[[Tensors, dict[str, Any]], None]
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


def without(*parts: str) -> Edit:
    """Leaves tensors out of the checkpoint."""

    def edit(tensors: Tensors, _config: dict[str, Any]) -> None:
        for name in [name for name in tensors if any(part in name for part in parts)]:
            del tensors[name]

    return edit


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
    low, middle, high = np.split(tensors["fc.weight"], 3, axis=1)
    tensors["fc.weight"] = np.ascontiguousarray(np.concatenate((high, middle, low), axis=1))


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


def break_head(source: Path, folder: Path, fault: Fault) -> None:
    """Writes a head with a fault.

    Args:
        source: the healthy head.
        folder: to create.
        fault: what to do.
    """
    shutil.copytree(source, folder)
    tensors = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    fault.edit(tensors, config)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))


def scenario(name: str) -> Scenario:
    """The run of a fault: enough steps for a statistical verdict."""
    fault = FAULTS[name]
    return Scenario(
        speculative=model(f"eagle3-{name}", "eagle3", **fault.settings),
        sampling={"max_tokens": 48},
        num_prompts=8,
        repeats=fault.repeats,
    )
