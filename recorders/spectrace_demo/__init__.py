"""The bundled models: a tiny target, a tiny draft and an EAGLE-3 head, really trained, and prompts.

Owns where the files are and the held-out prompts. Imports neither torch nor transformers: load the
folders with `AutoModelForCausalLM.from_pretrained` and `AutoTokenizer.from_pretrained`.
How they were trained: `README.md` and `train.py` beside this file.
"""

from __future__ import annotations

from pathlib import Path

from spectrace_demo.world import HELD_OUT_PROMPTS

__all__ = ["draft_path", "eagle3_path", "prompts", "target_path"]

_MODELS = Path(__file__).parent / "models"


def target_path() -> Path:
    """Return the folder of the target: config, generation config, weights and tokenizer."""
    return _MODELS / "target"


def draft_path() -> Path:
    """Return the folder of the draft, which shares the target's tokenizer."""
    return _MODELS / "draft"


def eagle3_path() -> Path:
    """Return the folder of the target's EAGLE-3 head, in EAGLE's own naming."""
    return _MODELS / "eagle3"


def prompts() -> tuple[str, ...]:
    """Return the demo prompts; no training document begins with one of them."""
    return HELD_OUT_PROMPTS
