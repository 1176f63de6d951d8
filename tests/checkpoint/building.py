"""Small draft checkpoints in any of the usual styles, whole or damaged, for the tests of several rooms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN, HEADS, GROUPS, INNER = 16, 4, 2, 24
"""Sizes of the tiny drafts; heads are 4 wide."""

Arrays = dict[str, NDArray[Any]]

_DTYPES = {"bool": "BOOL", "uint8": "U8", "int32": "I32", "int64": "I64", "float16": "F16", "float32": "F32"}
_DTYPES |= {"float64": "F64", "int16": "I16", "uint16": "BF16"}
"""numpy dtype -> safetensors; uint16 stands for bfloat16, which numpy lacks."""


def save(path: Path, tensors: Mapping[str, NDArray[Any]]) -> Path:
    """A .safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, array in tensors.items():
        data = np.ascontiguousarray(array).tobytes()
        span = [len(body), len(body) + len(data)]
        header[name] = {"dtype": _DTYPES[str(array.dtype)], "shape": list(array.shape), "data_offsets": span}
        body += data
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + body)
    return path


def bf16(array: NDArray[Any]) -> NDArray[np.uint16]:
    """Float32 values as the upper halves of their bits."""
    return (np.asarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def d2t_of(kept: Sequence[int]) -> NDArray[np.int64]:
    """Offsets of a sorted list of target ids."""
    return np.asarray(kept, np.int64) - np.arange(len(kept))


def t2d_of(kept: Sequence[int], vocab: int) -> NDArray[np.bool_]:
    """Mask of the kept target ids."""
    mask = np.zeros(vocab, bool)
    mask[list(kept)] = True
    return mask


def head_tensors(
    draft_vocab: int,
    *,
    layer: str = "midlayer",
    taps: int = 3,
    hidden: int = HIDDEN,
    target_hidden: int = HIDDEN,
) -> Arrays:
    """All weights of a one-layer EAGLE-3 head, in bfloat16."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> NDArray[Any]:
        return bf16(random.standard_normal(shape))

    wide = hidden // HEADS
    parts = {
        "self_attn.q_proj": (hidden, 2 * hidden),
        "self_attn.k_proj": (GROUPS * wide, 2 * hidden),
        "self_attn.v_proj": (GROUPS * wide, 2 * hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (INNER, hidden),
        "mlp.up_proj": (INNER, hidden),
        "mlp.down_proj": (hidden, INNER),
        "input_layernorm": (hidden,),
        "hidden_norm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    return {
        "fc.weight": weight(hidden, taps * target_hidden),
        **{f"{layer}.{name}.weight": weight(*shape) for name, shape in parts.items()},
        "norm.weight": weight(hidden),
        "lm_head.weight": weight(draft_vocab, hidden),
    }


def llama_config(vocab: int, draft_vocab: int, **more: Any) -> dict[str, Any]:
    """config.json of a one-layer draft."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "vocab_size": vocab,
        "draft_vocab_size": draft_vocab,
        "rope_theta": 10000.0,
        "max_position_embeddings": 2048,
        **more,
    }


def speculators_config(vocab: int, draft_vocab: int, **more: Any) -> dict[str, Any]:
    """config.json in the format of the speculators library."""
    layer = llama_config(vocab, draft_vocab)
    layer.pop("architectures")
    layer.pop("draft_vocab_size")
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "verifier": {"name_or_path": "some/target", "architectures": ["LlamaForCausalLM"]}
        },
        "draft_vocab_size": draft_vocab,
        "norm_before_residual": False,
        "transformer_layer_config": layer,
        **more,
    }


def target_config(vocab: int, layers: int = 32, **more: Any) -> dict[str, Any]:
    """config.json of a target."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": HIDDEN,
        "vocab_size": vocab,
        "rope_theta": 10000.0,
        "max_position_embeddings": 2048,
        **more,
    }


def write_model(
    directory: Path, config: Mapping[str, Any] | None, tensors: Mapping[str, NDArray[Any]]
) -> Path:
    """A model directory."""
    directory.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (directory / "config.json").write_text(json.dumps(config))
    if tensors:
        save(directory / "model.safetensors", tensors)
    return directory


KEPT = (0, 1, 2, 3, 5, 9, 17, 30)
"""The eight ids of 32 that H1 of the design keeps."""


def write_draft(
    directory: Path,
    config: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """A sound draft of 8 of 32 ids, then changed: a tensor set to None is left out."""
    tensors = head_tensors(8, **options) | {"d2t": d2t_of(KEPT), "t2d": t2d_of(KEPT, 32)}
    tensors |= dict(changes or {})
    kept = {name: array for name, array in tensors.items() if array is not None}
    return write_model(directory, llama_config(32, 8) if config is None else config, kept)


def story_map() -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """d2t and t2d with the figures of the story: 32,000 of 163,840 ids, 20,954 different offsets.

    The first 101 ids are kept unchanged, 787 are passed over up to draft id 1000, and of the 30,999 steps
    beyond, 20,166 pass over one to eleven ids each.
    """
    steps = np.zeros(32_000, np.int64)
    steps[101 : 101 + 787] = 1
    steps[1001 : 1001 + 20_166] = 1 + np.arange(20_166) % 11
    offsets = np.cumsum(steps)
    ids = offsets + np.arange(32_000)
    return offsets, t2d_of(ids.tolist(), 163_840)
