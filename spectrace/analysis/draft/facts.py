"""What every check asks first: what kind of draft this is, its sizes and those of its target.

Derived from configuration and tensor headers; where the two disagree, the tensors win and the checks say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from spectrace.analysis.draft.engines import is_speculators
from spectrace.checkpoint.config import Config
from spectrace.checkpoint.records import Checkpoint, Tensor

_LEGACY = {"aux_norm_low": "fc_norm.0", "aux_norm_mid": "fc_norm.1", "aux_norm_high": "fc_norm.2"}
"""Source: SGLang 0.5.23 ``sglang/srt/models/llama_eagle3.py``, ``legacy_name_map``."""

_TEXT_SECTIONS = ("text_config", "llm_config", "language_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFacts:
    """A draft and its target in numbers; None is unknown."""

    kind: str
    """``eagle3``, ``eagle`` (1 and 2), ``dflash`` or ``model`` (a language model of its own)."""
    style: str
    """``speculators``, ``nested`` (eagle_config), ``top-level`` or ``plain``."""
    raw: Config
    """config.json as it stands."""
    config: Config
    """The draft layer's own fields, whatever object they stand in."""
    target: Config
    """The target's text model; empty without a target."""
    target_architectures: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    """Canonical name -> tensor: no ``model.``, ``layers.0.`` for ``midlayer.``."""
    modules: frozenset[str]
    """Everything that a tensor's name begins with, up to a dot."""
    target_vocab: int | None
    draft_vocab: int | None
    head_rows: int | None
    hidden: int | None
    target_hidden: int | None
    target_layers: int | None
    num_layers: int
    """Transformer layers of the draft itself."""
    num_taps: int | None
    """Taps that fc takes, by its width."""

    @property
    def is_reduced(self) -> bool:
        """The draft knows fewer ids than the target."""
        return (
            self.draft_vocab is not None
            and self.target_vocab is not None
            and self.draft_vocab < self.target_vocab
        )

    @property
    def architecture(self) -> str:
        """First architecture that config.json names."""
        return (self.raw.texts("architectures") or ("",))[0]

    def has(self, module: str) -> bool:
        """Whether any tensor belongs to a module, plain or quantized."""
        return module in self.modules

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Shape of a tensor, None where it is missing."""
        tensor = self.tensors.get(name)
        return None if tensor is None else tensor.shape


def canonical(name: str) -> str:
    """One name for one weight.

    >>> canonical("midlayer.mlp.up_proj.weight"), canonical("model.layers.1.hidden_norm.weight")
    ('layers.0.mlp.up_proj.weight', 'layers.1.hidden_norm.weight')
    """
    for legacy, new in _LEGACY.items():
        name = name.replace(legacy, new)
    return re.sub(r"^midlayer\.", "layers.0.", name.removeprefix("model."))


def gather(draft: Checkpoint, target: Checkpoint | None) -> DraftFacts:
    """Facts of a draft, with those of a target where it is given."""
    raw = draft.config
    config = raw.over(raw.section("transformer_layer_config"))
    whole = Config() if target is None else target.config
    text = next((whole.section(name) for name in _TEXT_SECTIONS if whole.has(name)), whole)
    tensors = {canonical(name): tensor for name, tensor in draft.tensors.items()}
    head = tensors.get("lm_head.weight")
    hidden = _size(config, "hidden_size")
    fc = tensors.get("fc.weight")
    target_hidden = _size(text, "hidden_size") or _size(config, "target_hidden_size") or hidden
    declared_vocab = _size(config, "draft_vocab_size")
    d2t = None if draft.table is None else draft.table.d2t
    head_rows = None if head is None else head.rows
    table_rows = None if d2t is None else int(d2t.size)
    return DraftFacts(
        kind=_kind(raw, config, tensors),
        style=_style(raw),
        raw=raw,
        config=config,
        target=text.over(whole.without(*_TEXT_SECTIONS)),
        target_architectures=whole.texts("architectures") or _verifier(raw),
        tensors=tensors,
        modules=frozenset(modules_of(tensors)),
        target_vocab=_target_vocab(draft, text, config),
        draft_vocab=declared_vocab or head_rows or table_rows or _size(config, "vocab_size"),
        head_rows=head_rows,
        hidden=hidden,
        target_hidden=target_hidden,
        target_layers=_size(text, "num_hidden_layers", 10_000),
        num_layers=_size(config, "num_hidden_layers", 64) or 1,
        num_taps=_num_taps(fc, target_hidden),
    )


def _kind(raw: Config, config: Config, tensors: Mapping[str, Tensor]) -> str:
    words = " ".join((*raw.texts("architectures"), raw.text("speculators_model_type") or "")).lower()
    if "dflash" in words or raw.has("dflash_config"):
        return "dflash"
    has_hidden_norm = any(name.endswith("hidden_norm.weight") for name in tensors)
    marks = ("d2t" in tensors, has_hidden_norm, raw.has("eagle_config"), config.has("draft_vocab_size"))
    if "eagle3" in words or "peagle" in words or any(marks):
        return "eagle3"
    if "eagle" in words or "fc.weight" in tensors:
        return "eagle"
    return "model"


def _style(raw: Config) -> str:
    if is_speculators(raw):
        return "speculators"
    if raw.has("eagle_config"):
        return "nested"
    return "top-level" if raw.has("eagle_aux_hidden_state_layer_ids") else "plain"


def _verifier(raw: Config) -> tuple[str, ...]:
    """Architectures of the target as the speculators format notes them."""
    return raw.texts("speculators_config", "verifier", "architectures")


def _target_vocab(draft: Checkpoint, target: Config, config: Config) -> int | None:
    """Rows of the target's vocabulary: its own word first, then the length of t2d, then the draft's."""
    t2d = None if draft.table is None else draft.table.t2d
    marked = None if t2d is None else int(t2d.size)
    return _size(target, "vocab_size") or marked or _size(config, "vocab_size")


def _size(config: Config, name: str, most: int = 2**31) -> int | None:
    """A size that a model can have; None for anything else."""
    value = config.integer(name)
    return value if value is not None and 0 < value <= most else None


def modules_of(names: Iterable[str]) -> Iterator[str]:
    """Every beginning of these names that ends before a dot."""
    for name in names:
        while "." in name:
            name = name.rpartition(".")[0]
            yield name


def _num_taps(fc: Tensor | None, target_hidden: int | None) -> int | None:
    if fc is None or len(fc.shape) != 2 or not target_hidden or fc.shape[1] % target_hidden:
        return None
    return fc.shape[1] // target_hidden
