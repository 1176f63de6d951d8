"""What an EAGLE-3 checkpoint's config.json says, in every style that is written: one frozen answer.

Owns the meaning of layer ids and flags. Reads no tensor; where config.json is silent, the names of the
tensors decide.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import LlamaConfig

from spectrace.checkpoint.config import Config
from spectrace.errors import CheckpointError

_MOST_LAYERS = 64
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class TapPlan:
    """Which boundaries of the target the draft is fed with, and who says so."""

    declared: tuple[int, ...] | None
    """Layer ids as the config writes them."""
    numbering: str | None
    """input: id L means B(L), output: B(L+1)."""
    origin: str
    """config | default | argument."""
    boundaries: tuple[int, ...]
    """k of B(k), in the order in which fc takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadConfig:
    """Sizes and flags of a draft head."""

    layer: LlamaConfig
    """The draft's transformer layers: attention, MLP, rotary settings."""
    rope_declared: dict[str, Any]
    """Rotary settings as config.json writes them."""
    window_declared: int
    """Tokens that the checkpoint lets a layer see; 0 for all. This decoder shows it all."""
    num_layers: int
    draft_vocab_size: int | None
    """None where config.json does not say; the LM head or d2t does."""
    target_hidden_size: int | None
    norm_before_residual: bool
    """The residual is the normed state instead of the state as it comes."""
    norm_before_fc: bool
    """One norm over all taps together before fc."""
    fc_norm: bool
    """A norm for each tap before fc."""
    norm_output: bool
    """The state fed back is the one after the final norm."""
    layer_ids: tuple[int, ...] | None
    numbering: str | None
    training: dict[str, Any]
    """What the training reported, as config.json holds it under this name."""


def read_config(path: Path, raw: Config, tensor_names: Collection[str]) -> HeadConfig:
    """Reads config.json.

    Args:
        path: folder of the checkpoint, for sentences.
        raw: its config.json.
        tensor_names: canonical names of the tensors.

    Raises:
        CheckpointError: sizes are missing, or a setting is of a kind that this decoder does not run.
    """
    nested = raw.section("eagle_config")
    config = raw.over(raw.section("transformer_layer_config"))
    is_speculators = raw.has("speculators_model_type")
    if nested.flag("use_aux_hidden_state") is False:
        raise CheckpointError(path, "use_aux_hidden_state is false: a draft without fc is not EAGLE-3")

    def flag(name: str, default: bool) -> bool:
        for section in (nested, config):
            value = section.flag(name)
            if value is not None:
                return value
        return default

    num_layers = config.integer("num_hidden_layers") or 1
    if not 0 < num_layers <= _MOST_LAYERS:
        raise CheckpointError(path, f"config.json says {num_layers:,} layers; a draft has a few")

    return HeadConfig(
        layer=_layer_config(path, config),
        rope_declared=_declared_rope(config),
        window_declared=_window(config),
        num_layers=num_layers,
        draft_vocab_size=config.integer("draft_vocab_size"),
        target_hidden_size=config.integer("target_hidden_size"),
        # Absent from the speculators format it means true: vLLM 0.33.0
        # vllm/transformers_utils/configs/speculators/algos.py, update_eagle3.
        norm_before_residual=flag("norm_before_residual", is_speculators),
        norm_before_fc=flag("norm_before_fc", "input_norm.weight" in tensor_names),
        fc_norm=flag("fc_norm", flag("use_aux_norm", "fc_norm.0.weight" in tensor_names)),
        norm_output=flag("norm_output", False),
        training={name: raw.at("training", name) for name in raw.section("training").names()},
        **_layer_ids(raw, nested),
    )


def _layer_ids(raw: Config, nested: Config) -> dict[str, Any]:
    """Layer ids and what they count.

    Top level: the input of layer L (vLLM, speculators). In eagle_config: its output (SpecForge,
    Model-Optimizer, SGLang; SGLang 0.5.23 models/llama.py, set_eagle3_layers_to_capture adds 1).
    """
    for section, name, numbering in (
        (raw, LAYER_IDS, "input"),
        (raw, "aux_hidden_state_layer_ids", "input"),
        (nested, LAYER_IDS, "output"),
    ):
        ids = section.ids(name)
        if ids is not None:
            return {"layer_ids": ids, "numbering": numbering}
    return {"layer_ids": None, "numbering": None}


def plan_taps(
    path: Path, config: HeadConfig, num_taps: int, num_layers: int, argument: tuple[int, ...] | None
) -> TapPlan:
    """The boundaries to feed the draft with.

    Args:
        path: folder of the checkpoint, for sentences.
        config: its config.
        num_taps: how many fc takes.
        num_layers: of the target, n.
        argument: boundaries given by the caller, which win.

    Raises:
        CheckpointError: not as many as fc takes, or one that the target does not have.
    """
    if argument is not None:
        plan = TapPlan(
            declared=config.layer_ids, numbering=config.numbering, origin="argument", boundaries=argument
        )
    elif config.layer_ids is not None:
        shift = config.numbering == "output"
        boundaries = tuple(layer + shift for layer in config.layer_ids)
        plan = TapPlan(
            declared=config.layer_ids, numbering=config.numbering, origin="config", boundaries=boundaries
        )
    else:
        # Source: SafeAILab/EAGLE eagle/model/modeling_llama_kv.py, LlamaModel.forward.
        boundaries = (2, num_layers // 2, num_layers - 3)
        plan = TapPlan(declared=None, numbering=None, origin="default", boundaries=boundaries)
    if len(plan.boundaries) != num_taps:
        what = f"fc takes {num_taps} taps, {len(plan.boundaries)} are {_given(plan)}: {plan.boundaries}"
        raise CheckpointError(path, what)
    for k in plan.boundaries:
        if not 0 <= k <= num_layers:
            what = f"boundary {k} ({_given(plan)}) does not exist; the target has 0 to {num_layers}"
            raise CheckpointError(path, what)
    return plan


def _given(plan: TapPlan) -> str:
    return {"argument": "given", "config": "declared"}.get(plan.origin, "there by default")


_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
_LAYER_KEYS = (
    *_SIZES,
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "max_position_embeddings",
    "attention_bias",
    "mlp_bias",
)
_ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")


def _layer_config(path: Path, config: Config) -> LlamaConfig:
    missing = [name for name in _SIZES if not config.integer(name)]
    if missing:
        raise CheckpointError(path, f"config.json does not say {', '.join(missing)}")
    given = {key: config.at(key) for key in (*_LAYER_KEYS, *_ROPE_KEYS) if config.has(key)}
    try:
        return LlamaConfig(**given)
    except Exception as error:  # transformers judges settings in many ways
        what = f"config.json is refused by transformers: {error.__cause__ or error}"
        raise CheckpointError(path, " ".join(what.split())[:300]) from error


def _window(config: Config) -> int:
    """As transformers reads it: a size counts unless it is switched off."""
    is_off = config.flag("use_sliding_window") is False
    return 0 if is_off else config.integer("sliding_window") or 0


def _declared_rope(config: Config) -> dict[str, Any]:
    """Rotary settings as they stand: one mapping since transformers 5, two keys before."""
    parameters = config.at("rope_parameters")
    if isinstance(parameters, dict):
        return dict(parameters)
    scaling = config.at("rope_scaling")
    scaled = dict(scaling) if isinstance(scaling, dict) else {}
    theta = config.number("rope_theta")
    return scaled if theta is None else {"rope_theta": theta, **scaled}
