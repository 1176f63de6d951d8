"""Which boundaries each engine would feed the draft from this very configuration.

B(k) is the residual stream after k target layers: B(0) embeddings, B(n) the last layer before the final norm.
A layer id means "input of layer L" = B(L) to some engines and "output of layer L" = B(L + 1) to others, and
not all look for it in the same place. Each rule names the source it was read in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spectrace.analysis.draft.engines import (
    EAGLE,
    LLAMA_CPP,
    SGLANG,
    SPECFORGE,
    SPECULATORS,
    TENSORRT_LLM,
    VLLM_V1,
    VLLM_V2,
    Engine,
    vllm_view,
)
from spectrace.analysis.draft.facts import DraftFacts
from spectrace.checkpoint.config import Config

IDS = "eagle_aux_hidden_state_layer_ids"
NESTED = ("eagle_config", IDS)
_USE = ("eagle_config", "use_aux_hidden_state")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What an engine makes of a configuration."""

    origin: str
    """Where it found the ids, or ``default``."""
    boundaries: tuple[int, ...] | None
    """In the order of concatenation; None where the target's number of layers is needed and unknown."""
    is_default: bool = False
    is_final: bool = False
    """Only the target's final state, after its norm."""
    note: str = ""

    @property
    def words(self) -> str:
        """The boundaries as text."""
        if self.is_final:
            return "final state, normed"
        if self.boundaries is None:
            return "B(2) B(n//2) B(n-3)" if self.is_default else "-"
        return " ".join(f"B({k})" for k in self.boundaries)

    @property
    def brief(self) -> str:
        """The same without the B, for a column."""
        return self.words.replace("B(", "").replace(")", "")


@dataclass(frozen=True, slots=True)
class TapRule:
    """One engine's rule."""

    engine: Engine
    source: str
    """Path and symbol in that version."""
    choose: Callable[[DraftFacts], Choice]


def default(facts: DraftFacts, ascending: bool = True) -> Choice:
    """Boundaries 2, n // 2 and n - 3, which all engines share where no ids are given.

    Source: vLLM 0.33.0 ``vllm/model_executor/models/interfaces.py``,
    ``get_eagle3_default_aux_hidden_state_layers``; EAGLE cb7e084 ``eagle/model/modeling_llama_kv.py``.
    SpecForge, Model-Optimizer and TensorRT-LLM spell the same ones as layer outputs (1, n // 2 - 1, n - 4).
    """
    n = facts.target_layers
    found: tuple[int, ...] | None = None if n is None else (2, n // 2, n - 3)
    if found is not None and ascending:
        found = tuple(sorted(set(found)))
    return Choice(origin="default", boundaries=found, is_default=True)


def _after(ids: Sequence[int]) -> tuple[int, ...]:
    """Boundaries of layer ids that mean outputs."""
    return tuple(layer + 1 for layer in ids)


def sorted_ids(ids: Sequence[int]) -> tuple[int, ...]:
    """Without repetition, ascending: what engines that capture layer by layer concatenate."""
    return tuple(sorted(set(ids)))


def _found(origin: str, ids: Sequence[int], note: str = "") -> Choice:
    return Choice(origin=origin, boundaries=tuple(ids), note=note)


FINAL = Choice(origin="use_aux_hidden_state", boundaries=None, is_final=True)


def _vllm_v1(facts: DraftFacts) -> Choice:
    """Top level; else dflash_config + 1, which an eagle_config replaces, even one without ids."""
    view = vllm_view(facts.raw)
    if view.flag(*_USE) is False:
        return FINAL
    if ids := view.ids(IDS):
        return _found("top level, as is", sorted_ids(ids))
    if view.has("eagle_config"):
        ids = view.ids(*NESTED)
        return _found("eagle_config, as is", sorted_ids(ids)) if ids else default(facts)
    if ids := view.ids("dflash_config", "target_layer_ids"):
        return _found("dflash_config, + 1", sorted_ids(_after(ids)))
    return default(facts)


def _vllm_v2(facts: DraftFacts) -> Choice:
    """Top level as is, then four places of block drafts; never eagle_config's own list."""
    view = vllm_view(facts.raw)
    if view.flag(*_USE) is False:
        return FINAL
    if ids := view.ids(IDS):
        return _found("top level, as is", sorted_ids(ids))
    if ids := view.ids("dflash_config", "target_layer_ids"):
        return _found("dflash_config, + 1", sorted_ids(_after(ids)))
    if ids := view.ids("dspark_target_layer_ids"):
        if view.text("model_type") == "deepseek_v41":
            return _found("dspark ids, as is", sorted_ids(ids))
        return _found("dspark ids, + 1", sorted_ids(_after(ids)))
    if ids := view.ids("target_layer_ids"):
        return _found("target_layer_ids, + 1", sorted_ids(_after(ids)))
    for name in ("dflash_config", "eagle_config"):
        if ids := view.ids(name, "layer_ids"):
            return _found(f"{name}.layer_ids, as is", sorted_ids(ids))
    return default(facts)


_SGLANG_BY_FIRST = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "KimiK25ForConditionalGeneration",
    }
)
"""Targets that add 1 only where the first id is 1; Kimi K2.5 hands the ids on to its DeepSeek model.

Source: SGLang 0.5.23 ``sglang/srt/models/deepseek_v2.py``, ``glm4_moe_lite.py`` and ``kimi_k25.py``,
``set_eagle3_layers_to_capture``.
"""

_SGLANG_CAPTURES_LAST = frozenset(
    {
        "GptOssForCausalLM",
        "LagunaForCausalLM",
        "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM",
        "MiniMaxM3SparseForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
        "NemotronHForCausalLM",
    }
)
"""Targets whose loop also captures B(n); the others visit the inputs of layers 0 to n - 1 only.

Source: SGLang 0.5.23 ``sglang/srt/models/gpt_oss.py`` and its siblings,
``self.end_layer in self.layers_to_capture``.
"""


def _sglang(facts: DraftFacts) -> Choice:
    """eagle_config alone; an id is a layer's output, with exceptions by target."""
    config, architectures = facts.raw, set(facts.target_architectures)
    if config.flag(*_USE) is False:
        return FINAL
    if facts.kind == "dflash":
        ids = config.ids("dflash_config", "target_layer_ids")
        return _found("dflash_config, + 1", sorted_ids(_after(ids))) if ids else default(facts)
    ids = config.ids(*NESTED)
    if ids is None:
        found = default(facts)
        if "MiniMaxM3SparseForConditionalGeneration" in architectures and found.boundaries:
            return Choice(origin="default, + 1", boundaries=_after(found.boundaries), is_default=True)
        return found
    n = facts.target_layers
    by_first = bool(architectures & _SGLANG_BY_FIRST) and ids[0] != 1
    by_last = "GptOssForCausalLM" in architectures and n is not None and max(ids) == n
    boundaries = sorted_ids(ids if by_first or by_last else _after(ids))
    origin = "eagle_config, as is" if by_first or by_last else "eagle_config, + 1"
    if n is not None and not architectures & _SGLANG_CAPTURES_LAST and max(boundaries) >= n:
        note = f"never captures B({max(boundaries)})"
        return _found(origin, [k for k in boundaries if k < n], note)
    return _found(origin, boundaries)


def _tensorrt_llm(facts: DraftFacts) -> Choice:
    """The user's argument alone, layer outputs; without it the shared default, above five layers."""
    found = default(facts)
    is_shallow = facts.target_layers is not None and facts.target_layers <= 5
    return Choice(
        origin="argument only",
        boundaries=None if is_shallow else found.boundaries,
        is_default=not is_shallow,
    )


def _llama_cpp(facts: DraftFacts) -> Choice:
    """Top level as is, in the order of the list; exactly three."""
    ids = facts.raw.ids(IDS)
    if ids is None and (block := facts.raw.ids("dflash_config", "target_layer_ids")):
        return _found("dflash_config, + 1", _after(block))
    if ids is None:
        return default(facts, ascending=False)
    note = "" if len(ids) == 3 else "refuses: needs three"
    return _found("top level, as is", ids, note)


def _speculators(facts: DraftFacts) -> Choice:
    """Top level as is."""
    ids = facts.raw.ids(IDS) or facts.raw.ids("aux_hidden_state_layer_ids")
    return _found("top level, as is", ids) if ids else default(facts, ascending=False)


def _specforge(facts: DraftFacts) -> Choice:
    """eagle_config, layer outputs, exactly three."""
    ids = facts.raw.ids(*NESTED)
    if ids is None:
        return default(facts, ascending=False)
    note = "" if len(ids) == 3 else "refuses: needs three"
    return _found("eagle_config, + 1", _after(ids), note)


def _eagle(facts: DraftFacts) -> Choice:
    """Fixed in the target's model code."""
    found = default(facts, ascending=False)
    return Choice(origin="fixed", boundaries=found.boundaries, is_default=True)


RULES = (
    TapRule(
        VLLM_V1,
        "vllm/v1/worker/gpu_model_runner.py, _get_eagle3_aux_layers_from_config",
        _vllm_v1,
    ),
    TapRule(
        VLLM_V2,
        "vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py, get_eagle3_aux_layers_from_config",
        _vllm_v2,
    ),
    TapRule(
        SGLANG,
        "sglang/srt/model_executor/model_runner_components/spec_aux_hidden_state.py, "
        "_resolve_eagle_aux_hidden_state; sglang/srt/models/*.py, set_eagle3_layers_to_capture",
        _sglang,
    ),
    TapRule(
        TENSORRT_LLM,
        "tensorrt_llm/_torch/speculative/eagle3.py (f933a60), layers_to_capture",
        _tensorrt_llm,
    ),
    TapRule(LLAMA_CPP, "conversion/llama.py and src/models/eagle3.cpp, target_layers", _llama_cpp),
    TapRule(
        SPECULATORS,
        "src/speculators/models/eagle3/config.py, eagle_aux_hidden_state_layer_ids",
        _speculators,
    ),
    TapRule(
        SPECFORGE,
        "specforge/modeling/target/eagle3_target_model.py, set_aux_hidden_states_layers",
        _specforge,
    ),
    TapRule(EAGLE, "eagle/model/modeling_llama_kv.py, LlamaModel.forward", _eagle),
)
"""Every engine, in the order of the table."""


def declared(facts: DraftFacts) -> Choice:
    """What the configuration itself means, by the convention of the tool that writes such a file.

    Top level: inputs (speculators; vLLM reads it so). eagle_config: outputs (SpecForge, Model-Optimizer).
    dflash_config, target_layer_ids: outputs. Nothing: the default that all trainers share.
    """
    config = facts.raw
    if config.flag(*_USE) is False:
        return FINAL
    if ids := config.ids(IDS) or config.ids("aux_hidden_state_layer_ids"):
        return _found(f"{IDS}: inputs", ids)
    if ids := config.ids(*NESTED):
        return _found(f"eagle_config.{IDS}: outputs", _after(ids))
    for keys in (("dflash_config", "target_layer_ids"), ("target_layer_ids",), ("dspark_target_layer_ids",)):
        if ids := config.ids(*keys):
            return _found(f"{'.'.join(keys)}: outputs", _after(ids))
    return default(facts, ascending=False)


def config_has_bad_ids(config: Config) -> str | None:
    """A key that should list layer ids and holds something else."""
    for keys in ((IDS,), NESTED, ("dflash_config", "target_layer_ids")):
        if config.has(*keys) and config.ids(*keys) is None and config.at(*keys) != []:
            return ".".join(keys)
    return None
