"""Faults of a draft's checkpoint: how one is edited, and the edits that the tests of several engines make.

Imports no engine. Tensors are numpy arrays by their name in the checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

Tensors = dict[str, Any]
Edit = Callable[[Tensors, dict[str, Any]], None]
"""Changes tensors and config.json in place."""
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


def without(*parts: str) -> Edit:
    """Leaves tensors out of the checkpoint."""

    def edit(tensors: Tensors, _config: dict[str, Any]) -> None:
        for name in [name for name in tensors if any(part in name for part in parts)]:
            del tensors[name]

    return edit


def descending(tensors: Tensors) -> None:
    """Makes the weights those of a head that was trained on the same layers in descending order."""
    low, middle, high = np.split(tensors["fc.weight"], 3, axis=1)
    tensors["fc.weight"] = np.ascontiguousarray(np.concatenate((high, middle, low), axis=1))


def break_head(source: Path, folder: Path, edit: Edit) -> None:
    """Writes a head with a fault.

    Args:
        source: the healthy head.
        folder: to create.
        edit: makes the fault.
    """
    shutil.copytree(source, folder)
    tensors = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    edit(tensors, config)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
