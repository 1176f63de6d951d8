"""Drafts in the form in which SGLang takes them, where it differs from vLLM's. Imports no engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tests.recorders.fitted_drafts import write


def write_for_sglang(models: Path) -> None:
    """Writes EAGLE-1 under SGLang's name for it, and with a bias: without one SGLang takes random numbers.

    Source of the form: SGLang 0.5.23 srt/models/llama_eagle.py, whose ``fc`` always has a bias.

    Args:
        models: holds what ``write_heads`` wrote.
    """
    source = models / "eagle1"
    tensors = load_file(source / "model.safetensors")
    tensors["fc.bias"] = np.zeros(len(tensors["fc.weight"]), np.float32)
    config = json.loads((source / "config.json").read_text())
    write(models / "eagle1-sglang", tensors, {**config, "architectures": ["LlamaForCausalLMEagle"]})
