"""What is read out of a model directory, as frozen records; no I/O, no verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from spectrace.checkpoint.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor by its header; its values stay in the file."""

    name: str
    dtype: str
    """As safetensors spells it: F32, BF16, I64, BOOL."""
    shape: tuple[int, ...]
    file: str
    """Name of the file, relative to the checkpoint."""
    start: int = 0
    """Byte offset of the values in the file; 0 in a pickle."""
    size: int = 0
    """Bytes of the values."""

    @property
    def rows(self) -> int | None:
        """Length of the first axis; None for a scalar."""
        return self.shape[0] if self.shape else None


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is there and could not be read."""

    file: str
    """Path as it was opened."""
    what: str
    """Rest of the sentence, safe to print."""
    tensor: str | None = None
    """Name of the tensor, as it stands in the file."""
    needs: str | None = None
    """A package without which the file is not read; None where the file itself is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What a look at a tensor's values showed."""

    nonfinite: int
    """NaN and infinite values among those read."""
    is_zero: bool
    """Every value read is zero."""
    bytes_read: int
    bytes_total: int

    @property
    def is_sample(self) -> bool:
        """Not every value was read."""
        return self.bytes_read < self.bytes_total


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabTable:
    """`d2t` and `t2d` as they lie in one place."""

    source: str
    """Where they were found, for a sentence."""
    d2t: NDArray[Any] | None = None
    """[draft_vocab_size] in the dtype of the file."""
    t2d: NDArray[Any] | None = None
    """[target_vocab_size] in the dtype of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """Facts of a tokenizer.json and of the special ids declared around it."""

    digest: str
    """SHA-256 of tokenizer.json."""
    texts: Mapping[int, str] = field(repr=False)
    """Id -> text, added tokens included."""
    special_ids: Mapping[str, tuple[int, ...]]
    """bos, eos, pad -> ids, as config.json, generation_config.json or tokenizer_config.json say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model directory, as far as it could be read."""

    path: Path
    config: Config
    """Empty where config.json is missing or damaged."""
    tensors: Mapping[str, Tensor]
    missing: tuple[str, ...] = ()
    """Tensors that the index names and no file holds."""
    files: tuple[str, ...] = ()
    """Weight files that were read."""
    unread: tuple[str, ...] = ()
    """Weight files that were not, such as pickles without torch."""
    table: VocabTable | None = None
    values: Mapping[str, Values] = field(default_factory=dict)
    tokenizer: Tokenizer | None = None
    other_tokenizer: str | None = None
    """A tokenizer file that is not read, where there is no tokenizer.json."""
    faults: tuple[Fault, ...] = ()


ITEM_BITS = {
    "F4": 4,
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
"""Bits per value of each dtype. Source: safetensors ``safetensors/src/tensor.rs``, ``Dtype::bitsize``."""
