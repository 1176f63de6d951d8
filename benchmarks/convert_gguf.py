"""Writes the model in a GGUF file as an ordinary folder for transformers, in single precision.

    python benchmarks/convert_gguf.py FILE.gguf FOLDER

Needs gguf and accelerate beside transformers.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    """Converts."""
    source, out = Path(sys.argv[1]), sys.argv[2]
    file: Any = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    model: Any = AutoModelForCausalLM.from_pretrained(**file, dtype=torch.float32)
    # The weights are plain numbers by now; transformers still thinks of them as quantized.
    del model.config.quantization_config
    model.hf_quantizer = None
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(**file).save_pretrained(out)


if __name__ == "__main__":
    main()
