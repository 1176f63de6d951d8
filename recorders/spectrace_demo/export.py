"""The bundled models with another head size, for engines whose attention knows only some.

The result computes the same: queries, keys and values are padded with zeros, and what the head size enters
(the scale of the scores, the rotary frequencies) is undone in the weights and the configuration. Owns this
arithmetic; needs no torch.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

Array = npt.NDArray[Any]


def export(source: Path, folder: Path, head_dim: int = 64) -> Path:
    """Writes a bundled model, or head, with heads of another size, in single precision.

    Args:
        source: folder of a Llama or of an EAGLE-3 head in Llama's naming.
        folder: to create.
        head_dim: even, and at least as large as it is.

    Returns:
        The folder created.
    """
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    shutil.copytree(source, folder)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    before = config.get("head_dim") or config["hidden_size"] // heads
    tensors = load_file(source / "model.safetensors")
    for name, tensor in tensors.items():
        if tensor.dtype == np.float16:
            tensor = tensor.astype(np.float32)
        kind = name.removesuffix(".weight").rpartition(".")[2]
        if kind == "q_proj":
            # Scores are divided by the root of the head size.
            tensor = _padded(tensor, heads, head_dim, split=True) * np.float32(math.sqrt(head_dim / before))
        elif kind == "k_proj":
            tensor = _padded(tensor, kv_heads, head_dim, split=True)
        elif kind == "v_proj":
            tensor = _padded(tensor, kv_heads, head_dim, split=False)
        elif kind == "o_proj":
            tensor = _padded(tensor.T, heads, head_dim, split=False).T
        tensors[name] = np.ascontiguousarray(tensor)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_config(config, before, head_dim), indent=2) + "\n")
    return folder


def _padded(weight: Array, heads: int, head_dim: int, *, split: bool) -> Array:
    """Rows [heads * before, n] -> [heads * head_dim, n]: zeros at the end of each head, or of each half.

    Rotation pairs coordinate i with i + head_dim / 2, so its halves move apart.
    """
    parts = 2 if split else 1
    blocks = weight.reshape(heads * parts, -1, weight.shape[1])
    padding = head_dim // parts - blocks.shape[1]
    return np.pad(blocks, ((0, 0), (0, padding), (0, 0))).reshape(heads * head_dim, -1)


def _config(config: dict[str, Any], before: int, head_dim: int) -> dict[str, Any]:
    """The configuration that goes with the padded weights.

    Frequency i is theta ** (-2 i / head_dim), so theta grows with the head size.
    """
    parameters = config.get("rope_parameters")
    theta = (parameters or config).get("rope_theta", 10000.0) ** (head_dim / before)
    changed: dict[str, Any] = {"head_dim": head_dim}
    for name in ("dtype", "torch_dtype"):
        if name in config:
            changed[name] = "float32"
    if parameters is None:
        changed["rope_theta"] = theta
    else:
        changed["rope_parameters"] = {**parameters, "rope_theta": theta}
    return {**config, **changed}
