"""Drafts that foretell several tokens from one forward, fitted to the target: Medusa, DFlash, DSpark.

Least squares over the target's own texts; no training. Each folder lies beside the exported models. No
engine is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

Tensors = dict[str, Any]
Text = tuple[Any, Sequence[Any]]
"""Ids of a text, [tokens], and the target's states in it, boundary by boundary [tokens, H]."""
HEADS = 3
"""Of a Medusa draft: one for each token that a step drafts."""
BLOCK_LAYERS = (3, 6)
"""Layers whose outputs a block draft is declared to read; it uses those of the last."""
_RIDGE = 1e-2
_SHARPNESS = 20.0
"""Logit of a token that is certain; one-hot targets alone would leave every distribution nearly flat."""


def write_ahead(models: Path, texts: Sequence[Text]) -> None:
    """Writes every folder.

    Args:
        models: holds the exported ``target``.
        texts: of the target.
    """
    embeddings = load_file(models / "target/model.safetensors")["model.embed_tokens.weight"]
    config = json.loads((models / "target/config.json").read_text())
    _write_medusa(models / "medusa", config, texts)
    _write_block(models / "dflash", config, texts, embeddings, back=2)
    _write_block(models / "dspark", config, texts, embeddings, back=1)


def target_texts(folder: Path) -> Iterator[Text]:
    """What the target writes behind each bundled prompt, and its states there.

    Yields:
        [tokens] ids; [tokens, H] B(0), B(1), .. and last, in place of B(n), the state after the final norm.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from spectrace_demo import prompts

    target = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for prompt in prompts():
        ids = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        text = target.generate(**ids, do_sample=False, max_new_tokens=64)  # [1, tokens]
        with torch.inference_mode():
            states = target.model(text, output_hidden_states=True).hidden_states
        yield text[0].numpy(), [state[0].numpy() for state in states]


def _fit(read: Sequence[Any], wanted: Sequence[Any], size: int) -> Any:
    """Rows of a linear head that gives the most to the wanted token, [size, H]; ridge regression.

    Args:
        read: parts of [tokens, H].
        wanted: parts of [tokens] ids.
        size: of the vocabulary.
    """
    rows = np.concatenate(read).astype(np.float64)
    ids = np.concatenate(wanted)
    gram = rows.T @ rows + _RIDGE * np.eye(rows.shape[1])
    sums = np.zeros((size, rows.shape[1]))
    np.add.at(sums, ids, rows)  # one-hot of the wanted tokens, transposed, times rows
    return _SHARPNESS * np.linalg.solve(gram, sums.T).T


def _write_medusa(folder: Path, config: dict[str, Any], texts: Sequence[Text]) -> None:
    """Medusa: head k reads the state behind the last token and foretells the token k + 1 behind the pick.

    Blocks add next to nothing. Source of the form: vLLM 0.32.0 model_executor/models/medusa.py.
    """
    hidden, size = config["hidden_size"], config["vocab_size"]
    tensors = {}
    for head in range(HEADS):
        ahead = head + 2
        fitted = _fit([s[-1][:-ahead] for _, s in texts], [ids[ahead:] for ids, _ in texts], size)
        tensors[f"blocks.{head}.layers.0.weight"] = small(hidden, hidden)
        tensors[f"lm_heads.{head}.weight"] = fitted
    own = {"model_type": "medusa", "architectures": ["MedusaModel"], "num_heads": HEADS}
    sizes = {"hidden_size": hidden, "vocab_size": size, "num_hidden_layers": 1, "torch_dtype": "float32"}
    write(folder, tensors, {**own, **sizes})


def _write_block(
    folder: Path, config: dict[str, Any], texts: Sequence[Text], embeddings: Any, *, back: int
) -> None:
    """DFlash or DSpark: one layer, which reads the row at a fixed distance, and a head fitted to that row.

    Keys are the same everywhere, queries too, and so the rotation alone decides what is attended to: the
    token ``back`` positions before. That is the target's last state for the first draft token, and the last
    committed token's embedding for the second. What is there foretells the token two positions on.
    Source of the form: vLLM 0.32.0 model_executor/models/qwen3_dflash.py and qwen3_dspark.py.
    """
    hidden, size, inner, head_dim, theta = config["hidden_size"], config["vocab_size"], 64, 64, 100.0
    angles = back * theta ** (-np.arange(head_dim // 2) / (head_dim // 2))
    heads = hidden // head_dim
    attention = "layers.0.self_attn."
    tensors = {
        "fc.weight": np.concatenate([np.zeros((hidden, hidden)), np.eye(hidden)], axis=1),
        "hidden_norm.weight": np.ones(hidden),
        "norm.weight": np.ones(hidden),
        "layers.0.input_layernorm.weight": np.ones(hidden),
        "layers.0.post_attention_layernorm.weight": np.ones(hidden),
        "layers.0.mlp.gate_proj.weight": small(inner, hidden),
        "layers.0.mlp.up_proj.weight": small(inner, hidden),
        "layers.0.mlp.down_proj.weight": small(hidden, inner),
        attention + "q_norm.weight": np.full(head_dim, 6.0),
        attention + "k_norm.weight": np.full(head_dim, 6.0),
        attention + "q_proj.weight": small(hidden, hidden),
        attention + "k_proj.weight": small(hidden, hidden),
        attention + "v_proj.weight": np.eye(hidden),
        attention + "o_proj.weight": 100 * np.eye(hidden),  # dwarfs the mask's own embedding
        attention + "q_proj.bias": np.tile(np.concatenate([np.cos(angles), -np.sin(angles)]), heads),
        attention + "k_proj.bias": np.tile(np.repeat([1.0, 0.0], head_dim // 2), heads),
        attention + "v_proj.bias": np.zeros(hidden),
        attention + "o_proj.bias": np.zeros(hidden),
    }
    rows = [_normed(states[BLOCK_LAYERS[-1] + 1][:-2]) for _, states in texts]
    rows += [_normed(embeddings[ids[:-2]]) for ids, _ in texts]
    wanted = [ids[2:] for ids, _ in texts]
    tensors["lm_head.weight"] = _fit(rows, wanted * 2, size)
    own: dict[str, Any] = {
        "model_type": "qwen3", "hidden_size": hidden, "vocab_size": size, "intermediate_size": inner,
        "num_hidden_layers": 1, "num_attention_heads": heads, "num_key_value_heads": heads,
        "head_dim": head_dim, "attention_bias": True, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "rope_theta": theta, "max_position_embeddings": 512, "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }  # fmt: skip
    if back == 2:
        layers = {"mask_token_id": 2, "target_layer_ids": list(BLOCK_LAYERS)}
        write(folder, tensors, {**own, "architectures": ["DFlashDraftModel"], "dflash_config": layers})
        return
    tensors["markov_head.markov_w1.weight"] = embeddings
    read = [embeddings[ids[:-1]] for ids, _ in texts]
    tensors["markov_head.markov_w2.weight"] = _fit(read, [ids[1:] for ids, _ in texts], size)
    own |= {"mask_token_id": 2, "target_layer_ids": list(BLOCK_LAYERS), "markov_rank": hidden}
    write(folder, tensors, {**own, "architectures": ["Qwen3DSparkModel"]})


def small(rows: int, columns: int) -> Any:
    """A weight [rows, columns] that adds next to nothing; zeros would look like one that was not loaded."""
    return 1e-3 * np.random.default_rng(0).standard_normal((rows, columns))


def _normed(rows: Any) -> Any:
    """Rows [tokens, H] of RMS 1."""
    return rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + 1e-6)


def write(folder: Path, tensors: Tensors, config: dict[str, Any]) -> None:
    """A checkpoint: floats in single precision."""
    folder.mkdir()
    contiguous = {
        name: np.ascontiguousarray(t, t.dtype if t.dtype.kind != "f" else np.float32)
        for name, t in tensors.items()
    }
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
