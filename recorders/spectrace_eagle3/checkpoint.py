"""An EAGLE-3 checkpoint from a folder: one set of names, whoever wrote it, and what was missing.

Knows the two naming schemes: EAGLE and SpecForge write `midlayer.*`, speculators and Model-Optimizer
`layers.0.*`. Loads tensors with safetensors, or with torch where the file is a pickle (`weights_only`).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from spectrace.checkpoint.directory import open_checkpoint
from spectrace.checkpoint.records import Checkpoint
from spectrace.errors import CheckpointError
from spectrace_eagle3.config import HeadConfig, read_config

_OLD_NAMES = {"aux_norm_low": "fc_norm.0", "aux_norm_mid": "fc_norm.1", "aux_norm_high": "fc_norm.2"}
"""Source: SGLang 0.5.23 models/llama_eagle3.py."""
_TABLES = ("d2t", "t2d")
_NOT_WEIGHTS = ("rotary_emb.inv_freq",)


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabMap:
    """From raw ids to target ids."""

    table: Tensor
    """[draft_vocab_size] int64 target id of each raw id, as it is applied."""
    d2t: tuple[int, ...] | None = None
    """Offsets as they stand in the file."""
    t2d: tuple[int, ...] | None = None
    """Target ids that the mask in the file keeps, ascending."""
    source: str | None = None
    """checkpoint | missing; None where the vocabularies are the same and no map is needed."""
    applied: str = "identity"
    """offset | direct | identity."""

    def meant_ids(self) -> list[int]:
        """[draft_vocab_size] target ids by the file, however the table is applied."""
        if self.d2t is None:
            ids: list[int] = self.table.tolist()
            return ids
        return [raw + offset for raw, offset in enumerate(self.d2t)]

    @property
    def digest(self) -> str | None:
        """SHA-256 of d2t as little-endian int64."""
        if self.d2t is None:
            return None
        return "sha256:" + hashlib.sha256(np.asarray(self.d2t, "<i8").tobytes()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCheckpoint:
    """A checkpoint, read."""

    path: Path
    config: HeadConfig
    weights: dict[str, Tensor] = field(repr=False)
    """Canonical name (see `canonical`) -> tensor in the dtype of the file."""
    d2t: Tensor | None = field(repr=False)
    """[draft_vocab_size] int64."""
    t2d: Tensor | None = field(repr=False)
    """[target_vocab_size] bool."""


def canonical(name: str) -> str:
    """One name for one weight.

    >>> canonical("midlayer.self_attn.q_proj.weight"), canonical("model.layers.0.hidden_norm.weight")
    ('layers.0.self_attn.q_proj.weight', 'layers.0.hidden_norm.weight')
    """
    for old, new in _OLD_NAMES.items():
        name = name.replace(old, new)
    return re.sub(r"^midlayer\.", "layers.0.", name.removeprefix("model."))


def read_checkpoint(path: Path) -> DraftCheckpoint:
    """Reads config.json and all tensors of a folder.

    Raises:
        CheckpointError: something cannot be read, or is no EAGLE-3 draft.
    """
    found = open_checkpoint(path)
    for fault in found.faults:
        raise CheckpointError(fault.file, fault.what, fault.tensor, fault.needs)
    if not found.config:
        raise CheckpointError(path, "holds no config.json, or an empty one")
    if not found.tensors:
        gguf = " (GGUF files are not read)" if any(path.glob("*.gguf")) else ""
        raise CheckpointError(path, f"holds no weights that can be read{gguf}")
    tensors = _load(path, found)
    tables = {name: tensors.pop(name) for name in _TABLES if name in tensors}
    return DraftCheckpoint(
        path=path,
        config=read_config(path, found.config, tensors),
        weights=tensors,
        d2t=_whole_numbers(path, tables.get("d2t")),
        t2d=_mask(path, tables.get("t2d")),
    )


def _load(path: Path, found: Checkpoint) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in found.files:
        names = [name for name, tensor in found.tensors.items() if tensor.file == file]
        tensors |= {canonical(name): tensor for name, tensor in _values(path / file, names).items()}
    return {name: tensor for name, tensor in tensors.items() if not name.endswith(_NOT_WEIGHTS)}


def _values(file: Path, names: list[str]) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        with safe_open(file, "pt") as opened:
            return {name: opened.get_tensor(name) for name in names}
    held = torch.load(file, map_location="cpu", weights_only=True)
    return {name: held[name] for name in names}


def _whole_numbers(path: Path, table: Tensor | None) -> Tensor | None:
    if table is None:
        return None
    if table.dtype not in (torch.int64, torch.int32) or table.ndim != 1:
        what = f"holds {str(table.dtype).removeprefix('torch.')} {list(table.shape)}, not a list of int64"
        raise CheckpointError(path, what, "d2t")
    return table.to(torch.int64)


def _mask(path: Path, table: Tensor | None) -> Tensor | None:
    """The mask; a table of another kind (of ids, say) is left alone: no engine reads it."""
    if table is None or table.ndim != 1 or table.dtype not in (torch.bool, torch.uint8, torch.int8):
        return None
    return table.to(torch.bool)


def map_vocabulary(checkpoint: DraftCheckpoint, rows: int, target_vocab_size: int) -> VocabMap:
    """The map of a draft whose LM head has so many rows.

    Without a table raw ids are taken for target ids, as every engine does.

    Raises:
        CheckpointError: the table has another length, or leads out of the target's vocabulary.
    """
    d2t, t2d = checkpoint.d2t, checkpoint.t2d
    raw_ids = torch.arange(rows)  # [draft_vocab_size]
    if d2t is None:
        return VocabMap(table=raw_ids, source="missing" if rows != target_vocab_size else None)
    if len(d2t) != rows:
        what = f"holds {len(d2t):,} offsets; the draft's LM head has {rows:,} rows"
        raise CheckpointError(checkpoint.path, what, "d2t")
    table = raw_ids + d2t
    wrong = ((table < 0) | (table >= target_vocab_size)).nonzero().flatten()
    if len(wrong):
        at = int(wrong[0])
        what = (
            f"raw id {at:,} maps to {int(table[at]):,}, the target has {target_vocab_size:,} ids; "
            "is this table made for another target?"
        )
        raise CheckpointError(checkpoint.path, what, "d2t")
    return VocabMap(
        table=table,
        d2t=tuple(d2t.tolist()),
        t2d=None if t2d is None else tuple(t2d.nonzero().flatten().tolist()),
        source="checkpoint",
        applied="offset",
    )
