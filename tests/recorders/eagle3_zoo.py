"""Drafts and targets for tests of the EAGLE-3 decoder: the bundled ones, and random ones in every style."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import spectrace_demo

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

from spectrace.checkpoint.config import Config  # noqa: E402
from spectrace_eagle3.config import read_config  # noqa: E402
from spectrace_eagle3.head import Eagle3Head  # noqa: E402
from spectrace_eagle3.tree import Chain, DynamicTree, Plan, StaticTree  # noqa: E402

EOS = 1
PLANS: dict[str, Plan] = {
    "chain": Chain(4),
    "dynamic": DynamicTree(topk=4, depth=4, num_nodes=14),
    "static": StaticTree(((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 0, 0))),
}


@cache
def bundled_target() -> Any:
    """The bundled target."""
    transformers.utils.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(spectrace_demo.target_path()).eval()


@cache
def bundled_tokenizer() -> Any:
    """Its tokenizer."""
    return transformers.AutoTokenizer.from_pretrained(spectrace_demo.target_path())


def prompt_ids(number: int) -> list[int]:
    """One of the bundled prompts."""
    ids: list[int] = bundled_tokenizer()(spectrace_demo.prompts()[number]).input_ids
    return ids


SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


@cache
def random_target(kind: str = "llama") -> Any:
    """A random model of six layers with a vocabulary of 100."""
    torch.manual_seed(3)
    sizes = {**SIZES, "num_hidden_layers": 6, "vocab_size": 100, "initializer_range": 0.2, "head_dim": 8}
    names = {"llama": "LlamaConfig", "qwen3": "Qwen3Config", "gemma2": "Gemma2Config", "phi3": "Phi3Config"}
    config = getattr(transformers, names[kind])(**sizes, pad_token_id=0, eos_token_id=1, bos_token_id=0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def config_json(**more: Any) -> dict[str, Any]:
    """config.json of a random draft for `random_target`, in EAGLE's style."""
    sizes = {**SIZES, "vocab_size": 100, "draft_vocab_size": 40, "num_hidden_layers": 1, "rms_norm_eps": 1e-6}
    return {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", **sizes, **more}


def kept_ids() -> Any:
    """[40] target ids of the random draft's vocabulary."""
    return torch.cat((torch.arange(10), torch.arange(11, 100, 3)[:30]))


def random_weights(config: dict[str, Any], num_taps: int = 3, seed: int = 0) -> dict[str, Any]:
    """Canonical name -> tensor, embeddings not included."""
    torch.manual_seed(seed)
    read = read_config(Path("draft"), Config(config), ())
    head = Eagle3Head(read, num_taps=num_taps, target_hidden_size=32, draft_vocab_size=40)
    weights = {name: torch.randn_like(value) * 0.3 for name, value in head.state_dict().items()}
    for name in weights:
        if weights[name].ndim == 1:
            weights[name] = 1 + weights[name] / 3
    del weights["embed_tokens.weight"]
    kept = kept_ids()
    weights["d2t"] = kept - torch.arange(len(kept))
    weights["t2d"] = torch.zeros(100, dtype=torch.bool).index_fill(0, kept, True)
    return weights


def write_draft(
    folder: Path, config: dict[str, Any], weights: dict[str, Any], naming: str = "midlayer"
) -> Path:
    """A checkpoint folder; naming is `midlayer` or `layers.0`."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    named = {name.replace("layers.0", naming): tensor.contiguous() for name, tensor in weights.items()}
    save_file(named, folder / "model.safetensors")
    return folder


def bundled_weights() -> dict[str, Any]:
    """Tensors of the bundled head as they stand in its file."""
    return dict(load_file(spectrace_demo.eagle3_path() / "model.safetensors"))
