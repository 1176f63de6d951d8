"""Header facts: what transformers' configs and objects say about a run, in the names of a trace.

Feature detection only: a fact that an engine version does not offer is left out. No hooks here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from spectrace_transformers.token_text import Vocabulary

Facts = dict[str, Any]

# Class of the candidate generator -> (method, whether it hands over the draft's distribution).
_GENERATORS: Mapping[str, tuple[str, bool]] = {
    "EarlyExitCandidateGenerator": ("early_exit", True),
    "PromptLookupCandidateGenerator": ("ngram", False),
    "MTPCandidateGenerator": ("mtp", True),
    "SinglePositionMultiTokenCandidateGenerator": ("mtp", True),
    "DFlashTokenCandidateGenerator": ("dflash", True),
    "UniversalSpeculativeDecodingGenerator": ("draft_model", True),
    "AssistedCandidateGeneratorDifferentTokenizers": ("draft_model", False),
    "AssistedCandidateGenerator": ("draft_model", True),
}

_NO_DISTRIBUTION = ("draft_logprobs", "draft_entropy", "draft_top", "overlaps")
_NEVER = {
    "draft_positions": "transformers does not report where the draft was run",
    "draft_inputs": "a draft of transformers is fed tokens, not states",
}


def generator_kind(generator: Any) -> tuple[str, bool]:
    """Method of a candidate generator, and whether the draft's distribution is known with it."""
    for cls in type(generator).__mro__:
        if cls.__name__ in _GENERATORS:
            return _GENERATORS[cls.__name__]
    return "other", True


def reencodes_text(generator: Any) -> bool:
    """Whether proposals go through text, so that the draft's own tokens do not line up with them."""
    names = [cls.__name__ for cls in type(generator).__mro__]
    return (
        "AssistedCandidateGeneratorDifferentTokenizers" in names
        and "UniversalSpeculativeDecodingGenerator" not in names
    )


def start_facts(model: Any, boundaries: Sequence[int], *, is_text_captured: bool) -> Facts:
    """What is known before anything is generated."""
    facts: Facts = {
        "engine": {
            "name": "transformers",
            "version": version("transformers"),
            "flags": {
                "torch": version("torch"),
                "attention": getattr(model.config, "_attn_implementation", None),
                # With scikit-learn present transformers tunes the draft's confidence threshold.
                "scikit_learn": find_spec("sklearn") is not None,
            },
        },
        "target": model_facts(model),
        "capture": {"mode": "eager", "unavailable": dict(_NEVER), "text": is_text_captured},
    }
    if boundaries:
        facts["taps"] = {"boundaries": list(boundaries), "normed": False}
    return _without_missing(facts)


def asked_facts(
    max_new_tokens: int, num_draft_tokens: int | None, *, chat: bool, control: str | None
) -> Facts:
    """What `spectrace record` was asked for, so that a report can say how the run is made again.

    Paths and prompts are not among it.
    """
    flags = {"max_new_tokens": max_new_tokens, "num_draft_tokens": num_draft_tokens, "chat": chat}
    return _without_missing({"engine": {"flags": flags}, "control": control})


def model_facts(model: Any) -> Facts:
    """Size and kind of a model."""
    config = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    quantization = getattr(config, "quantization_config", None)
    if not isinstance(quantization, Mapping):
        quantization = {"quant_method": getattr(quantization, "quant_method", None)}
    method = quantization.get("quant_method")
    return {
        "id": model_id(getattr(config, "_name_or_path", None) or type(model).__name__),
        "revision": getattr(config, "_commit_hash", None),
        "vocab_size": getattr(text, "vocab_size", None),
        "num_layers": getattr(text, "num_hidden_layers", None),
        "hidden_size": getattr(text, "hidden_size", None),
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": None if method is None else str(getattr(method, "value", method)),
        "max_length": getattr(text, "max_position_embeddings", None),
    }


def model_id(name: str) -> str:
    """What a model is called, without the folders of the machine it lies on.

    >>> model_id("meta-llama/Llama-3.1-8B"), model_id("/data/someone/target")
    ('meta-llama/Llama-3.1-8B', 'target')
    >>> model_id("/cache/hub/models--org--model/snapshots/0123abcd")
    'org/model'
    """
    path = Path(name)
    cached = next((part for part in path.parts if part.startswith("models--")), None)
    if cached is not None:
        return cached.removeprefix("models--").replace("--", "/")
    return path.name if path.is_absolute() or path.exists() else name


def call_facts(
    generator: Any, generation_config: Any, processors: Sequence[Any], vocabulary: Vocabulary | None
) -> Facts:
    """What is known when a generate call has chosen its candidate generator."""
    method, has_distribution = generator_kind(generator)
    facts: Facts = {
        "method": method,
        "draft": _draft_facts(generator, method),
        "vocab_map": _map_facts(generator, method),
        "verification": _verification_facts(generation_config, has_distribution),
        "sampling": _sampling_facts(generation_config, processors),
        "speculation": {"num_draft_tokens": _num_draft_tokens(generator)},
        "tokenizer": _tokenizer_facts(generation_config, vocabulary),
        "engine": {"flags": _speculation_flags(generator)},
        "capture": {"unavailable": _unavailable(generator, has_distribution)},
    }
    return _without_missing(facts)


def _draft_facts(generator: Any, method: str) -> Facts | None:
    draft = getattr(generator, "assistant_model", None)
    if draft is None:
        return None
    facts = model_facts(draft)
    if method == "early_exit":
        return facts | {"num_layers": getattr(generator, "assistant_early_exit", None)}
    text = draft.config.get_text_config() if hasattr(draft.config, "get_text_config") else draft.config
    head = draft.get_output_embeddings() if hasattr(draft, "get_output_embeddings") else None
    weight = getattr(getattr(head, "pruned_lm_head", head), "weight", None)
    return facts | {
        "head_rows": None if weight is None else int(weight.shape[0]),
        "rope": rope_facts(text),
    }


def rope_facts(config: Any) -> Facts | None:
    """Rotary settings: one mapping since 5.0, two fields before."""
    parameters = getattr(config, "rope_parameters", None)
    if isinstance(parameters, Mapping):
        return dict(parameters)
    theta = getattr(config, "rope_theta", None)
    if theta is None:
        return None
    return {"rope_theta": theta, **(getattr(config, "rope_scaling", None) or {"rope_type": "default"})}


def _map_facts(generator: Any, method: str) -> Facts | None:
    """Only what is sure: a table between two tokenizers is no `d2t` and is not stored as one."""
    if hasattr(generator, "_atm_translator"):
        return {"source": "tokenizers"}
    if method == "ngram" or reencodes_text(generator):
        return None
    return {"applied": "identity"}


def _verification_facts(generation_config: Any, has_distribution: bool) -> Facts:
    weight = getattr(generation_config, "assistant_ensemble_weight", None)
    if not generation_config.do_sample:
        rule = "greedy"
    else:
        rule = "rejection_sampling" if has_distribution else "match"
    facts: Facts = {"rule": rule, "lossless": weight is None}
    return facts if weight is None else facts | {"assistant_ensemble_weight": weight}


def _sampling_facts(generation_config: Any, processors: Sequence[Any]) -> Facts:
    names = [type(processor).__name__ for processor in processors]
    if not generation_config.do_sample:
        return {"temperature": 0.0, "processors": names}
    return {
        "temperature": generation_config.temperature,
        "top_k": generation_config.top_k,
        "top_p": generation_config.top_p,
        "processors": names,
    }


def _num_draft_tokens(generator: Any) -> int | None:
    for name in ("num_assistant_tokens", "num_output_tokens"):
        number = getattr(generator, name, None)
        if number is not None:
            return int(number)
    return None


def _speculation_flags(generator: Any) -> Facts:
    config = getattr(generator, "assistant_generation_config", None)
    ngram = getattr(generator, "max_matching_ngram_size", None)
    return {
        "candidate_generator": type(generator).__name__,
        "num_assistant_tokens_schedule": getattr(config, "num_assistant_tokens_schedule", None),
        "assistant_confidence_threshold": getattr(config, "assistant_confidence_threshold", None),
        "max_matching_ngram_size": ngram,
    }


def _tokenizer_facts(generation_config: Any, vocabulary: Vocabulary | None) -> Facts:
    return {
        "bos_id": generation_config.bos_token_id,
        "eos_ids": sorted(eos_ids(generation_config)) or None,
        "vocab_size": None if vocabulary is None else len(vocabulary),
        "digest": None if vocabulary is None else vocabulary.digest,
    }


def _unavailable(generator: Any, has_distribution: bool) -> Facts:
    if has_distribution:
        return {}
    if not reencodes_text(generator):
        return dict.fromkeys(_NO_DISTRIBUTION, "prompt lookup copies tokens and has no distribution")
    reason = "the draft's text is encoded anew with the target's tokenizer"
    return dict.fromkeys((*_NO_DISTRIBUTION, "draft_ids", "draft_kv_length"), reason)


def eos_ids(generation_config: Any) -> frozenset[int]:
    """The ids that end a text; `generate` itself has completed them from the model's defaults."""
    ids = generation_config.eos_token_id
    if ids is None:
        ids = getattr(generation_config, "_eos_token_tensor", None)
    if ids is None:
        return frozenset()
    listed = ids.tolist() if hasattr(ids, "tolist") else ids
    return frozenset([listed] if isinstance(listed, int) else listed)


def raw_id_table(generator: Any, target_vocab_size: int) -> np.ndarray[Any, Any] | None:
    """Draft id of each target id, -1 for none, where transformers translates between vocabularies."""
    translator = getattr(generator, "_atm_translator", None)
    if translator is None:
        return None
    pairs = translator.target_to_assistant_input_ids
    table = np.full(max([target_vocab_size - 1, *pairs]) + 1, -1, np.int64)
    table[list(pairs)] = list(pairs.values())
    return table


def ids_digest(ids: Sequence[int]) -> str:
    """SHA-256 of token ids as little-endian int32."""
    return "sha256:" + hashlib.sha256(np.asarray(ids, "<i4").tobytes()).hexdigest()


def changed_sections(first: Facts, later: Facts) -> list[str]:
    """Names of the header sections in which a later call differs from the first."""
    names = ("method", "draft", "verification", "sampling", "speculation", "vocab_map")
    return [name for name in names if first.get(name) != later.get(name)]


def _without_missing(facts: Facts) -> Facts:
    """The facts without None, at every depth."""
    return {
        key: _without_missing(value) if isinstance(value, dict) else value
        for key, value in facts.items()
        if value is not None
    }
