"""Models, tokenizers and prompts of `spectrace record`: from local folders, never from the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from spectrace.errors import UnsupportedEngine


def be_quiet() -> None:
    """Leaves the terminal to the command: its own bar, and no hints about calls nobody here wrote."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()


def load_model(folder: Path, dtype: str, device: str | None) -> Any:
    """A causal language model, ready to generate.

    Args:
        folder: of the model.
        dtype: auto (as the checkpoint says), or a torch dtype's name.
        device: a torch device; a GPU where there is one by default.

    Raises:
        UnsupportedEngine: it cannot be loaded, or there is no such device.
    """
    kind = dtype if dtype == "auto" else getattr(torch, dtype)
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=kind, local_files_only=True)
        return model.eval().to(place)
    except Exception as error:
        raise UnsupportedEngine("transformers", f"{folder} cannot be loaded: {_brief(error)}") from error


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in a model's folder.

    Raises:
        UnsupportedEngine: it cannot be loaded.
    """
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        what = f"the tokenizer in {folder} cannot be loaded: {_brief(error)}"
        raise UnsupportedEngine("transformers", what) from error


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer of its own."""
    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
    return any((folder / name).exists() for name in names)


def encode(target: Any, tokenizer: Any, prompt: str, *, chat: bool) -> dict[str, Any]:
    """Token ids and mask of one prompt, [1, prompt length] each, where the target is.

    Args:
        target: the model.
        tokenizer: its tokenizer.
        prompt: text.
        chat: wrap it in the tokenizer's chat template.

    Raises:
        UnsupportedEngine: there is no chat template, or nothing to begin with.
    """
    text, special = prompt, True
    if chat:
        message = [{"role": "user", "content": prompt}]
        try:
            text = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        except ValueError as error:
            raise UnsupportedEngine("transformers", f"--chat: {_brief(error)}") from error
        special = False  # the template writes them
    encoded = tokenizer(text, return_tensors="pt", add_special_tokens=special)
    if encoded["input_ids"].shape[-1] == 0:
        raise UnsupportedEngine("transformers", "an empty prompt has no token to begin with")
    return {name: encoded[name].to(target.device) for name in ("input_ids", "attention_mask")}


def _brief(error: BaseException) -> str:
    """What transformers says, which may be a page long, in one line."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 200 else words[:199] + "…"
