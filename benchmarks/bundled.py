"""Loading the models that generation is measured with, and one real run.

The bundled pair, or any local folder whose first layers serve as its draft. Measures nothing.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

import spectrace_demo
import spectrace_transformers

logging.set_verbosity_error()
logging.disable_progress_bar()

NEW_TOKENS = 96
"""Generated for each prompt."""
DRAFT_LAYERS = 4
"""First layers of a model that make its draft."""


def load(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a folder."""
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True)


def bundled_draft() -> Any:
    """The draft of the bundled pair."""
    return load(spectrace_demo.draft_path())[0]


def first_layers(model: Any) -> Any:
    """A draft made of a model's first layers, its embeddings and its head; it shares their weights."""
    draft = copy.copy(model)
    draft._modules = dict(model._modules)
    draft.config = copy.deepcopy(model.config)
    draft.config.num_hidden_layers = DRAFT_LAYERS
    draft.generation_config = copy.deepcopy(model.generation_config)
    decoder = copy.copy(model.model)
    decoder._modules = dict(decoder._modules)
    decoder.config = draft.config
    decoder.layers = model.model.layers[:DRAFT_LAYERS]
    draft.model = decoder
    return draft


def fix_proposals(model: Any) -> None:
    """Five draft tokens at every step, so that runs are alike."""
    config = model.generation_config
    config.num_assistant_tokens = 5
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0


def encoded(tokenizer: Any) -> list[Any]:
    """The demo prompts as inputs of `generate`."""
    return [
        tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        for prompt in spectrace_demo.prompts()
    ]


def generate(model: Any, prompt: Any, options: dict[str, Any]) -> list[int]:
    """Greedy generation from one prompt; the ids."""
    with torch.inference_mode():
        output = model.generate(
            **prompt,
            **options,
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            pad_token_id=model.generation_config.eos_token_id,
        )
    found: list[int] = output[0].tolist()
    return found


def record_demo(path: Path) -> None:
    """Records the bundled pair on every demo prompt."""
    model, tokenizer = load(spectrace_demo.target_path())
    draft = bundled_draft()
    fix_proposals(draft)
    with spectrace_transformers.record(path, model, tokenizer=tokenizer):
        for prompt in encoded(tokenizer):
            generate(model, prompt, {"assistant_model": draft})
