"""Drafts for methods that no bundled model serves, made from the bundled ones without training.

Each folder lies beside the exported models. No engine is imported here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.recorders.fitted_drafts import Tensors, Text, small, target_texts, write, write_ahead

_DRAFT = {"num_hidden_layers": 1, "tie_word_embeddings": False}


def write_heads(models: Path) -> None:
    """Writes every folder.

    Args:
        models: holds the exported ``target`` and ``eagle3``.
    """
    texts = list(target_texts(models / "target"))
    _write_eagle1(models, texts)
    _write_parallel(models)
    _write_mimo(models)
    _write_renumbered(models)
    write_ahead(models, texts)


def _write_eagle1(models: Path, texts: Sequence[Text]) -> None:
    """EAGLE-1: fc alone foretells the next state, by least squares over the target's own texts.

    Attention and MLP add next to nothing. Source of the form: vLLM 0.32.0
    model_executor/models/llama_eagle.py.
    """
    config = json.loads((models / "target/config.json").read_text())
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = (
        config[f"num_{kind}_heads"] * config["head_dim"] for kind in ("attention", "key_value")
    )
    embeddings = load_file(models / "target/model.safetensors")["model.embed_tokens.weight"]
    read, wanted = _states(texts, embeddings)
    ridge = 1e-2 * np.eye(2 * hidden)
    fc = np.linalg.solve(read.T @ read + ridge, read.T @ wanted).T  # [H, 2H]
    layer = {
        "self_attn.q_proj": (heads, hidden), "self_attn.k_proj": (kv_heads, hidden),
        "self_attn.v_proj": (kv_heads, hidden), "self_attn.o_proj": (hidden, heads),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
    }  # fmt: skip
    tensors = {f"layers.0.{name}.weight": small(*shape) for name, shape in layer.items()}
    tensors["layers.0.post_attention_layernorm.weight"] = np.ones(hidden, np.float32)
    tensors["fc.weight"] = fc.astype(np.float32)
    tensors["embed_tokens.weight"] = embeddings
    write(models / "eagle1", tensors, {**config, **_DRAFT})


def _states(texts: Sequence[Text], embeddings: Any) -> tuple[Any, Any]:
    """What an EAGLE-1 head reads, and the state that it should give, over texts of the target.

    Returns:
        [tokens, 2H] embedding of the next token and state after the final norm; [tokens, H] the next state.
    """
    read, wanted = [], []
    for ids, states in texts:
        read.append(np.concatenate([embeddings[ids[1:]], states[-1][:-1]], axis=1))
        wanted.append(states[-1][1:])
    return np.concatenate(read).astype(np.float64), np.concatenate(wanted).astype(np.float64)


def _write_parallel(models: Path) -> None:
    """P-EAGLE: the bundled head reads a mask at every depth but the first, which it was not trained for."""
    config = json.loads((models / "eagle3/config.json").read_text())
    tensors = load_file(models / "eagle3/model.safetensors")
    width = tensors["fc.weight"].shape[1]
    write(
        models / "parallel",
        tensors | {"mask_hidden": np.zeros((1, width), np.float32)},
        {**config, "ptd_token_id": 2},
    )


def _write_renumbered(models: Path) -> None:
    """The bundled draft model with a tokenizer that numbers the same tokens the other way round."""
    source, folder = models / "draft", models / "draft-renumbered"
    shutil.copytree(source, folder)
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    words: dict[str, int] = tokenizer["model"]["vocab"]
    special = len(tokenizer["added_tokens"])  # which come first, and stay
    old = np.arange(len(words))  # [V] id of each new id
    old[special:] = old[special:][::-1].copy()
    tokenizer["model"]["vocab"] = {word: int(old[at]) for word, at in words.items()}  # its own inverse
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    tensors = load_file(source / "model.safetensors")
    name = "model.embed_tokens.weight"  # the head too
    tensors[name] = tensors[name][old]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _write_mimo(models: Path) -> None:
    """MTP: a target in MiMo's form in which a token nearly decides the next one, and a layer that knows how.

    Source of the form: vLLM 0.32.0 model_executor/models/mimo_mtp.py; MiMo is Qwen2 beside that layer.
    """
    hidden, inner, vocab, layers, heads = 192, 256, 1280, 2, 3
    random = np.random.default_rng(0)

    def block(prefix: str, scale: float) -> Tensors:
        shapes = {
            **{f"self_attn.{name}_proj.weight": (hidden, hidden) for name in "qkvo"},
            **{f"self_attn.{name}_proj.bias": (hidden,) for name in "qkv"},
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
        }
        made = {prefix + name: scale * random.standard_normal(shape) for name, shape in shapes.items()}
        for name in ("input_layernorm", "post_attention_layernorm"):
            made[f"{prefix}{name}.weight"] = np.ones(hidden)
        return made

    tensors = {
        "model.embed_tokens.weight": random.standard_normal((vocab, hidden)),
        "lm_head.weight": random.standard_normal((vocab, hidden)),
        "model.norm.weight": np.ones(hidden),
    }
    for at in range(layers):
        tensors |= block(f"model.layers.{at}.", 0.04)
    mtp = "model.mtp_layers.0."
    tensors |= block(mtp, 1e-3)
    tensors[mtp + "input_proj.weight"] = np.concatenate([np.zeros((hidden, hidden)), np.eye(hidden)], axis=1)
    for name in ("token_layernorm", "hidden_layernorm", "final_layernorm"):
        tensors[f"{mtp}{name}.weight"] = np.ones(hidden)
    config = {
        "architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "hidden_size": hidden,
        "intermediate_size": inner, "vocab_size": vocab, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": heads, "num_nextn_predict_layers": 1,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "torch_dtype": "float32", "bos_token_id": 0, "eos_token_id": 1,
    }  # fmt: skip
    write(models / "mimo", tensors, config)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(models / "target" / name, models / "mimo" / name)
