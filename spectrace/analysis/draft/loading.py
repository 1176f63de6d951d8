"""Which weights each engine looks for, and what it does about names it does not know and weights it misses.

Each rule names the source it was read in; statements that follow from code and were not executed are such.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from spectrace.analysis.draft.engines import (
    EAGLE,
    LLAMA_CPP,
    SGLANG,
    SPECFORGE,
    SPECULATORS,
    TENSORRT_LLM,
    VLLM,
    Engine,
    vllm_view,
)
from spectrace.analysis.draft.facts import DraftFacts, canonical, modules_of
from spectrace.analysis.draft.parts import wanted_modules

ATTENTION = r"self_attn\.(q|k|v|o|qkv)_proj"
MLA = (
    r"self_attn\.(q_a_proj|q_b_proj|q_proj|kv_a_proj_with_mqa|kv_b_proj|o_proj|q_a_layernorm|kv_a_layernorm)"
)
MLP = r"mlp\.(gate|up|down|gate_up)_proj"
NORMS = r"(input_layernorm|hidden_norm|post_attention_layernorm)"
QK_NORMS = r"self_attn\.(q|k)_norm"


class Fate(Enum):
    """What becomes of one tensor."""

    USED = "used"
    IGNORED = "ignored on purpose"
    """The engine says so, or takes the target's instead."""
    SKIPPED = "silently skipped"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class LoadRule:
    """How one engine loads a draft."""

    engine: Engine
    source: str
    on_missing: str
    """What happens to a weight that is not there, in a few words."""
    on_unknown: str
    fate: Callable[[str, DraftFacts], Fate]
    layer: str = "layers.0"
    """What it calls the draft's first layer."""

    def called(self, module: str) -> str:
        """A canonical name as this engine spells it."""
        return re.sub(r"^layers\.0\.", f"{self.layer}.", module)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """One line of the table."""

    rule: LoadRule
    skipped: tuple[str, ...]
    """Names in this checkpoint that the engine silently skips."""
    refused: tuple[str, ...]
    """Names in this checkpoint that make it stop."""
    looks_for: tuple[str, ...]
    """Modules that it cannot do without, as it calls them."""
    lacking: tuple[str, ...]
    """Those of them that it finds under no name in this checkpoint."""
    unknown_class: str | None
    """Architecture in config.json that the engine has no class for."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "engine": self.rule.engine.name,
            "version": self.rule.engine.version,
            "source": self.rule.source,
            "on_missing": self.rule.on_missing,
            "on_unknown": self.rule.on_unknown,
            "skipped": list(self.skipped),
            "refused": list(self.refused),
            "looks_for": list(self.looks_for),
            "lacking": list(self.lacking),
            "unknown_class": self.unknown_class,
        }


def load_rows(facts: DraftFacts, names: Sequence[str]) -> tuple[LoadRow, ...]:
    """What each engine would do with these names.

    Args:
        facts: of the draft.
        names: tensors as they stand in the files.
    """
    rows = []
    for rule in RULES:
        fates = {name: rule.fate(name, facts) for name in names if not name.endswith(_COMPUTED)}
        taken = frozenset(modules_of(canonical(name) for name, fate in fates.items() if fate is Fate.USED))
        wanted = wanted_modules(facts)
        rows.append(
            LoadRow(
                rule=rule,
                skipped=tuple(name for name, fate in fates.items() if fate is Fate.SKIPPED),
                refused=tuple(name for name, fate in fates.items() if fate is Fate.REFUSED),
                looks_for=tuple(map(rule.called, wanted)),
                lacking=tuple(rule.called(module) for module in wanted if module not in taken),
                unknown_class=_unknown_class(rule.engine, facts),
            )
        )
    return tuple(rows)


_SGLANG_CLASSES = frozenset({"LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"})
"""Source: SGLang 0.5.23 ``sglang/srt/models/llama_eagle3.py`` and ``kimi_k25_eagle3.py``, ``EntryClass``."""


def _unknown_class(engine: Engine, facts: DraftFacts) -> str | None:
    """Only SGLang's list is short enough to be sure of."""
    if engine is not SGLANG or not facts.architecture or facts.architecture in _SGLANG_CLASSES:
        return None
    return facts.architecture


_COMPUTED = "rotary_emb.inv_freq"
"""A buffer that every engine computes for itself."""


def _layer_part(name: str, parts: Sequence[str], num_layers: int) -> bool:
    """Whether a canonical name belongs to one of these modules in one of the draft's layers."""
    found = re.match(r"layers\.(\d{1,3})\.(.+)$", name)
    if found is None or int(found[1]) >= num_layers:
        return False
    return re.match(rf"({'|'.join(parts)})\.", found[2]) is not None


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _vllm(name: str, facts: DraftFacts) -> Fate:
    """Renames midlayer, drops norms that are switched off, stops at anything unknown."""
    view = vllm_view(facts.raw)
    if "t2d" in name or "mask_hidden" in name:
        return Fate.IGNORED
    if "d2t" in name:
        return Fate.USED
    if name.startswith("model."):
        return Fate.REFUSED
    short = name.replace("midlayer.", "layers.0.")
    parts = [ATTENTION, MLP, NORMS]
    if "Qwen3" in facts.architecture or facts.config.text("model_type") == "qwen3":
        parts.append(QK_NORMS)
    if "Deepseek" in facts.architecture:
        parts.append(MLA)
    if _layer_part(short, parts, facts.num_layers):
        return Fate.USED
    if _module(short) == "input_norm":
        nested = view.flag("eagle_config", "norm_before_fc")
        on = view.flag("norm_before_fc") if nested is None else nested
        return Fate.USED if on else Fate.SKIPPED
    if short.startswith("fc.") and view.flag("eagle_config", "use_aux_hidden_state") is False:
        return Fate.SKIPPED
    if re.match(r"fc_norm\.\d+\.", short):
        return Fate.USED if view.flag("fc_norm") else Fate.REFUSED
    return Fate.USED if _module(short) in ("fc", "norm", "lm_head", "embed_tokens") else Fate.REFUSED


def _sglang(name: str, facts: DraftFacts) -> Fate:
    """Takes names with or without ``model.``; whatever is no parameter is passed over."""
    config = facts.raw
    short = canonical(name)
    if "t2d" in short:
        return Fate.IGNORED
    if "d2t" in short:
        return Fate.USED
    parts = [ATTENTION, MLP, NORMS]
    if "Deepseek" in facts.architecture:
        parts = [MLA, MLP, NORMS]
    if _layer_part(short, parts, facts.num_layers):
        return Fate.USED
    module = _module(short)
    if module == "embed_tokens":
        return Fate.IGNORED
    if module == "lm_head":
        return Fate.SKIPPED if config.flag("tie_word_embeddings") else Fate.USED
    if module == "input_norm":
        nested = config.flag("eagle_config", "norm_before_fc")
        on = config.flag("norm_before_fc") if nested is None else nested
        return Fate.USED if on else Fate.SKIPPED
    if re.fullmatch(r"fc_norm\.\d+", module):
        return Fate.USED if config.flag("fc_norm") or config.flag("use_aux_norm") else Fate.SKIPPED
    if module == "fc":
        has_bias = config.flag("bias") is True
        return Fate.USED if short != "fc.bias" or has_bias else Fate.SKIPPED
    return Fate.USED if module == "norm" else Fate.SKIPPED


def _tensorrt_llm(name: str, facts: DraftFacts) -> Fate:
    """Renames layers.N to midlayer and asks for each of its own parameters; never looks at other names."""
    if name.startswith("model."):
        return Fate.SKIPPED
    short = canonical(name)
    if short == "t2d":
        return Fate.IGNORED
    if short == "d2t" or _layer_part(short, [ATTENTION, MLA, MLP, NORMS], facts.num_layers):
        return Fate.USED
    module = _module(short)
    if module == "embed_tokens":
        return Fate.USED if facts.hidden != facts.target_hidden else Fate.IGNORED
    if module == "input_norm":
        return Fate.USED if facts.raw.flag("eagle_config", "norm_before_fc") else Fate.SKIPPED
    if re.fullmatch(r"fc_norm\.\d+", module):
        return Fate.USED if facts.raw.flag("fc_norm") else Fate.SKIPPED
    return Fate.USED if module in ("fc", "norm", "lm_head", "enorm", "eh_proj") else Fate.SKIPPED


def _llama_cpp(name: str, facts: DraftFacts) -> Fate:
    """The converter stops at a name it cannot map; one layer of the Llama kind."""
    short = canonical(name)
    if short == "t2d":
        return Fate.IGNORED
    if short == "d2t" or _layer_part(short, [r"self_attn\.(q|k|v|o)_proj", MLP, NORMS], 1):
        return Fate.USED
    modules = ("fc", "norm", "lm_head", "embed_tokens", "input_norm")
    return Fate.USED if _module(short) in modules else Fate.REFUSED


def _eagle(name: str, facts: DraftFacts) -> Fate:
    """``load_state_dict(strict=False)`` of a module with `midlayer`: names it lacks pass silently."""
    if name in ("d2t", "t2d"):
        return Fate.USED
    parts = [r"self_attn\.(q|k|v|o)_proj", r"mlp\.(gate|up|down)_proj", NORMS]
    if name.startswith("midlayer.") and _layer_part(canonical(name), parts, 1):
        return Fate.USED
    if name == "embed_tokens.weight":
        return Fate.USED if facts.raw.has("target_hidden_size") else Fate.IGNORED
    return Fate.USED if name in ("fc.weight", "norm.weight", "lm_head.weight") else Fate.SKIPPED


def _speculators(name: str, facts: DraftFacts) -> Fate:
    """``layers.N``; its converter renames midlayer and warns of the rest."""
    short = canonical(name)
    known = _layer_part(short, [ATTENTION, MLP, NORMS, QK_NORMS], facts.num_layers)
    modules = ("fc", "norm", "lm_head", "embed_tokens", "input_norm", "verifier_lm_head", "verifier_norm")
    if known or short in ("d2t", "t2d") or _module(short) in modules or short.startswith("fc_norm."):
        return Fate.USED
    return Fate.SKIPPED


def _specforge(name: str, facts: DraftFacts) -> Fate:
    """``midlayer`` only; transformers warns of the rest."""
    parts = [r"self_attn\.(q|k|v|o)_proj", r"mlp\.(gate|up|down)_proj", NORMS]
    if name.startswith("midlayer.") and _layer_part(canonical(name), parts, 1):
        return Fate.USED
    modules = ("fc", "norm", "lm_head", "embed_tokens")
    return Fate.USED if name in _TABLES or _module(name) in modules or "fc_norm." in name else Fate.SKIPPED


_TABLES = ("d2t", "t2d")

RULES = (
    LoadRule(
        VLLM,
        "vllm/model_executor/models/llama_eagle3.py, Eagle3LlamaForCausalLM.load_weights; "
        "vllm/model_executor/models/utils.py, AutoWeightsLoader",
        "unset, silent",
        "stops",
        _vllm,
    ),
    LoadRule(
        SGLANG,
        "sglang/srt/models/llama_eagle3.py, LlamaForCausalLMEagle3.load_weights",
        "unset, silent",
        "skips, silent",
        _sglang,
    ),
    LoadRule(
        TENSORRT_LLM,
        "tensorrt_llm/_torch/models/modeling_speculative.py, Eagle3ForCausalLM.load_weights; "
        "modeling_utils.py, _load_weights_impl",
        "stops",
        "skips, silent",
        _tensorrt_llm,
    ),
    LoadRule(
        LLAMA_CPP,
        "conversion/llama.py, LlamaModel.index_tensors; src/models/eagle3.cpp, load_arch_tensors",
        "stops",
        "stops",
        _llama_cpp,
    ),
    LoadRule(
        SPECULATORS,
        "src/speculators/convert/eagle, Eagle3Converter; heads start as NaN",
        "NaN",
        "skips, warns",
        _speculators,
    ),
    LoadRule(
        SPECFORGE,
        "specforge/modeling/draft/llama3_eagle.py, LlamaForCausalLMEagle3",
        "random, warns",
        "skips, warns",
        _specforge,
        "midlayer",
    ),
    LoadRule(
        EAGLE,
        "eagle/model/ea_model.py, load_state_dict(strict=False); cnets.py, Model",
        "random, silent",
        "skips, silent",
        _eagle,
        "midlayer",
    ),
)
"""Every engine, in the order of the table."""
