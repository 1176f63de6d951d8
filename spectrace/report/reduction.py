"""What is left of one value: functions that let through numbers, and words from short lists.

Each takes anything a stranger or an engine may have written, and returns something of a known shape or
None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from spectrace.format.fields import FIELD_BY_NAME
from spectrace.report.vocabulary import is_plain


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OTHER = "other"
"""Stands for a word that is on no list."""
METHODS = frozenset(
    [
        "draft_model",
        "ngram",
        "early_exit",
        "eagle",
        "eagle2",
        "eagle3",
        "mtp",
        "medusa",
        "dflash",
        "suffix",
        "other",
    ]
)
ENGINES = frozenset(
    [
        "transformers",
        "vllm",
        "sglang",
        "llama.cpp",
        "tensorrt_llm",
        "spectrace_transformers",
        "spectrace_eagle3",
        "spectrace_vllm",
        "spectrace_sglang",
        "spectrace",
    ]
)
RUNNERS = frozenset(("chain", "dynamic tree", "static tree", "loop", "v0", "v1", "v2", "sync", "async"))
DTYPES = frozenset(
    [
        "none",
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
        "fp32",
        "fp16",
        "bf16",
        "fp8",
        "fp4",
        "nvfp4",
        "mxfp4",
        "mxfp8",
        "int4",
        "w4a16",
        "w8a8",
        "awq",
        "gptq",
        "gguf",
        "bitsandbytes",
        "compressed-tensors",
        "modelopt",
        "hqq",
        "quanto",
        "torchao",
    ]
)
MAP_WORDS = frozenset(["checkpoint", "file", "missing", "offset", "direct", "identity", "none", "tokenizers"])
TAP_WORDS = frozenset(["input", "output", "config", "default", "argument", "guess"])
VERIFICATION = frozenset(
    ["greedy", "match", "rejection_sampling", "target_only", "typical", "block", "synthetic", "other"]
)
MODES = frozenset(("eager", "graph", "unknown"))
PROCESSORS = frozenset(
    [
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "typical_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "no_repeat_ngram",
        "bad_words",
        "grammar",
        "min_tokens",
        "logit_bias",
    ]
)
STEP_WORDS: Mapping[str, frozenset[str]] = {
    "logits_kind": frozenset(("raw", "processed")),
    "final_kind": frozenset(("bonus", "recovered", "corrected", "draft", "none")),
    "stop": frozenset(("eos", "length", "stop_string")),
    "segment": frozenset(("prompt", "think", "answer", "tool", "grammar")),
    "mask": frozenset(("on", "off")),
    "taps.dtype": DTYPES,
    "flags": frozenset(("prefill", "replay", "dummy", "truncated", "simulated")),
}
"""Words of a step's text columns."""
GAP_REASONS = frozenset(
    ("disk full", "queue full", "too large", "malformed", "rotated", "damaged", "left out by pack")
)
ROPE = frozenset(
    [
        "theta",
        "base",
        "rope_theta",
        "rope_type",
        "type",
        "factor",
        "scaling_factor",
        "original_max_position_embeddings",
        "max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "partial_rotary_factor",
        "rotary_dim",
        "head_dim",
        "interleaved",
        "is_neox_style",
    ]
)
FLAGS = frozenset(
    [
        "torch",
        "transformers",
        "vllm",
        "sglang",
        "cuda",
        "attention",
        "attention_backend",
        "num_speculative_tokens",
        "num_draft_tokens",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "assistant_confidence_threshold",
        "scikit_learn",
        "max_matching_ngram_size",
        "prompt_lookup_num_tokens",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "speculative_algorithm",
        "method",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "draft_tensor_parallel_size",
        "tp_size",
        "pp_size",
        "dp_size",
        "enforce_eager",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_model_len",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "async_scheduling",
        "kv_cache_dtype",
        "block_size",
        "page_size",
        "gpu_memory_utilization",
        "disable_padded_drafter_batch",
        "parallel_drafting",
        "norm_before_residual",
        "norm_before_fc",
        "fc_norm",
        "norm_output",
        "from_target",
        "dtype",
        "quantization",
        "cuda_graph",
        "use_cuda_graph",
        "rejection_sample_method",
    ]
)
REPORTED = frozenset(
    [
        "accept_length",
        "acceptance_rate",
        "accept_length_without_bonus",
        "first_position_accuracy",
        "accuracy",
        "loss",
        "token_ns",
        "num_samples",
        "epochs",
    ]
)
_SETTING_WORDS = (
    DTYPES
    | METHODS
    | frozenset(
        [
            "auto",
            "default",
            "linear",
            "dynamic",
            "yarn",
            "longrope",
            "llama3",
            "su",
            "proportional",
            "constant",
            "heuristic",
            "heuristic_transient",
            "eager",
            "sdpa",
            "flash_attention_2",
            "flash_attention_3",
            "flex_attention",
            "flashinfer",
            "flash_attn",
            "triton",
            "fa3",
            "xformers",
            "EAGLE",
            "EAGLE3",
            "NEXTN",
            "STANDALONE",
            "NGRAM",
            "strict",
            "probabilistic",
        ]
    )
)
_PUBLISHERS = frozenset(
    [
        "meta-llama",
        "Qwen",
        "deepseek-ai",
        "openai",
        "google",
        "mistralai",
        "microsoft",
        "nvidia",
        "ibm-granite",
        "tiiuae",
        "allenai",
        "HuggingFaceTB",
        "EleutherAI",
        "zai-org",
        "moonshotai",
        "MiniMaxAI",
        "lmsys",
        "yuhuili",
        "RedHatAI",
        "AngelSlim",
        "baidu",
        "tencent",
        "openbmb",
        "bigcode",
        "bigscience",
        "stabilityai",
        "CohereLabs",
        "TinyLlama",
        "openai-community",
        "facebook",
        "JackFram",
        "spectrace_demo",
    ]
)
"""Names under which nobody else can publish a model, and the models bundled here."""
PARAMETER_WORDS = frozenset(
    [
        "model",
        "layers",
        "layer",
        "midlayer",
        "decoder",
        "self",
        "attn",
        "self_attn",
        "attention",
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "qkv_proj",
        "q_norm",
        "k_norm",
        "mlp",
        "gate_proj",
        "up_proj",
        "down_proj",
        "gate_up_proj",
        "input_layernorm",
        "post_attention_layernorm",
        "hidden_norm",
        "norm",
        "final_norm",
        "fc",
        "fc1",
        "fc2",
        "lm_head",
        "target_lm_head",
        "embed_tokens",
        "embed",
        "embedding",
        "head",
        "weight",
        "bias",
        "weight_scale",
        "weight_packed",
        "weight_shape",
        "input_scale",
        "qweight",
        "qzeros",
        "scales",
        "g_idx",
        "d2t",
        "t2d",
        "rotary_emb",
        "inv_freq",
        "enorm",
        "hnorm",
        "eh_proj",
        "shared_head",
        "mtp",
        "medusa_head",
        "linear",
        "target",
        "draft",
        "experts",
        "shared_experts",
        "gate",
        "draft_model",
        "transformer",
        "h",
        "wte",
        "wpe",
        "ln_f",
        "ln_1",
        "ln_2",
        "c_attn",
        "c_proj",
        "c_fc",
        "position_ids",
    ]
)
_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}((a|b|rc|\.dev|\.post)\d{1,4}){0,2}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,96}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MANY = 4096
"""Most entries kept of a list or map of the header."""


def nothing(value: Any) -> None:
    """Drops it."""


def integer(value: Any) -> int | None:
    """An integer."""
    return value if type(value) is int else None


def number(value: Any) -> float | int | None:
    """A number."""
    return value if type(value) in (int, float) else None


def boolean(value: Any) -> bool | None:
    """True or false."""
    return value if type(value) is bool else None


def integers(value: Any) -> list[int] | None:
    """A list of integers, as layers are named."""
    is_list = type(value) is list and len(value) <= 256
    return value if is_list and all(type(item) is int for item in value) else None


def word(known: frozenset[str]) -> Callable[[Any], str | None]:
    """One of some words, or *other*."""
    return lambda value: None if not isinstance(value, str) else value if value in known else OTHER


def words(known: frozenset[str]) -> Callable[[Any], list[str] | None]:
    """A list of some words; others as *other*."""
    one = word(known)
    return lambda value: (
        [one(item) or OTHER for item in value[:_MANY]] if isinstance(value, (list, tuple)) else None
    )


def version(value: Any) -> str | None:
    """The public part of a version: what stands behind a plus is dropped."""
    found = _VERSION.match(value) if isinstance(value, str) else None
    return found.group() if found else None


def day(value: Any) -> str | None:
    """The day of a time."""
    found = _DAY.match(value) if isinstance(value, str) else None
    return f"{found.group()}T00:00:00Z" if found else None


def digest(value: Any) -> str | None:
    """A SHA-256 as records write it."""
    return value if isinstance(value, str) and _DIGEST.fullmatch(value) else None


def model_name(value: Any) -> str | None:
    """``publisher/model`` of a publisher that is known to be public; anything else may be a path."""
    if not isinstance(value, str):
        return None
    publisher, _, name = value.partition("/")
    return value if publisher in _PUBLISHERS and _NAME.fullmatch(name) else None


def settings(known: frozenset[str]) -> Callable[[Any], dict[str, Any] | None]:
    """Entries of a map whose key is known and whose value is a number, a version or a known word."""

    def reduce(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, Mapping):
            return None
        found = {key: _setting(item) for key, item in value.items() if key in known}
        return {key: item for key, item in found.items() if item is not None}

    return reduce


def _setting(value: Any) -> Any:
    if type(value) in (bool, int, float) or (isinstance(value, str) and value in _SETTING_WORDS):
        return value
    return parameter_names(value) if isinstance(value, list) else version(value)


def parameter_names(value: Any) -> list[str] | None:
    """Names of parameters with every part that is not known shown as a star."""
    if not isinstance(value, (list, tuple)):
        return None
    return [_parameter_name(item) for item in value[:_MANY] if isinstance(item, str)]


def _parameter_name(name: str) -> str:
    parts = (
        p if p in PARAMETER_WORDS or re.fullmatch(r"\d{1,3}", p, re.ASCII) else "*" for p in name.split(".")
    )
    return ".".join(list(parts)[:12])


def fingerprints(value: Any) -> dict[str, Any] | None:
    """Shape, RMS and digest of each weight."""
    if not isinstance(value, Mapping):
        return None
    left: dict[str, Any] = {}
    for name, found in list(value.items())[:_MANY]:
        if isinstance(name, str) and isinstance(found, Mapping):
            short = _parameter_name(name)
            given = {"shape": integers(found.get("shape")), "rms": number(found.get("rms"))}
            given["digest"] = digest(found.get("digest"))  # type: ignore[assignment]
            left[short if short not in left else f"{short} {len(left)}"] = {
                key: item for key, item in given.items() if item is not None
            }
    return left


def unavailable(value: Any) -> dict[str, str] | None:
    """Why fields are missing: names of known fields, and reasons made of words that are known."""
    if not isinstance(value, Mapping):
        return None
    return {
        name: reason if _is_reason(reason) else "not recorded (reason removed)"
        for name, reason in value.items()
        if name in FIELD_BY_NAME
    }


def _is_reason(reason: Any) -> bool:
    return isinstance(reason, str) and is_plain(reason) and not any(map(str.isdigit, reason))
