"""The engines whose rules are known, in the versions that were read, and how each sees a configuration.

Every rule below names its place in one of these versions; another version may differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from spectrace.checkpoint.config import Config


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that runs or trains drafts."""

    name: str
    version: str
    """Release, or commit and date."""
    serves: bool
    """Serves requests; a trainer or a reference is shown, but no finding is made for it alone."""

    @property
    def label(self) -> str:
        """Name and release, for a sentence."""
        return f"{self.name} {self.version}" if self.version[:1].isdigit() else self.name


VLLM_V1 = Engine("vLLM V1", "0.33.0", True)
VLLM_V2 = Engine("vLLM V2", "0.33.0", True)
VLLM = Engine("vLLM", "0.33.0", True)
SGLANG = Engine("SGLang", "0.5.23", True)
TENSORRT_LLM = Engine("TensorRT-LLM", "commit 00679c66, 2026", True)
LLAMA_CPP = Engine("llama.cpp", "commit 0c1e57098, 2026-10-01", True)
SPECULATORS = Engine("speculators", "commit c05b95b, 2026-08-20", False)
SPECFORGE = Engine("SpecForge", "commit a6b6b02, 2026-08-08", False)
EAGLE = Engine("EAGLE", "commit cb7e084, 2026-02-19", False)

SPECULATORS_TYPES = frozenset({"eagle3", "peagle", "dflash", "dflash2", "dspark"})
"""Source: vLLM 0.33.0 ``vllm/transformers_utils/configs/speculators/algos.py``, the registered names."""

_COPIED = (
    "draft_vocab_size",
    "target_hidden_size",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
    "eagle_aux_hidden_state_layer_ids",
)


def is_speculators(config: Config) -> bool:
    """Whether config.json is in the format of the speculators library."""
    return config.text("speculators_model_type") in SPECULATORS_TYPES


def vllm_view(config: Config) -> Config:
    """The configuration that vLLM works with.

    Of the speculators format it keeps the layer's configuration and a list of keys, with
    ``norm_before_residual`` true for eagle3 where the key is absent.
    Source: vLLM 0.33.0 ``vllm/transformers_utils/configs/speculators/algos.py``, ``update_eagle3`` and
    ``update_peagle``; ``base.py``, ``extract_transformers_pre_trained_config``.

    >>> view = vllm_view(Config({"speculators_model_type": "eagle3", "transformer_layer_config": {"a": 1}}))
    >>> view.integer("a"), view.flag("norm_before_residual")
    (1, True)
    """
    if not is_speculators(config):
        return config
    kept = {name: config.at(name) for name in _COPIED if config.has(name)}
    kept.setdefault("norm_before_residual", config.text("speculators_model_type") == "eagle3")
    if config.has("aux_hidden_state_layer_ids"):
        kept["eagle_aux_hidden_state_layer_ids"] = config.at("aux_hidden_state_layer_ids")
    return Config(kept).over(config.section("transformer_layer_config"))
