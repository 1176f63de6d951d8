"""The table of a step's fields: name, number on disk, kind and shape.

One line here is the only place that says how a field of `Step` is stored; `records.py` says what it
means and SPEC.md prints this table. Nothing here reads, writes or computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["int", "float", "str"]
Shape = Literal["scalar", "list", "pairs", "struct", "structs"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One stored column: a field, or one key of a field that holds objects."""

    number: int
    """Number on disk; never given to another field, never reused."""
    path: str
    """``field`` or ``field.key``; the name by which a column is asked for."""
    kind: Kind
    depth: int
    """How many lists lie between a row and a value: 0 scalar, 1 list, 2 list of lists."""

    @property
    def field(self) -> str:
        """Name of the field of `Step` this column belongs to."""
        return self.path.partition(".")[0]

    @property
    def key(self) -> str:
        """Key within the field's objects; empty when the field is the column."""
        return self.path.partition(".")[2]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of `Step`.

    Shapes: ``scalar`` a value; ``list`` a list of values; ``pairs`` a list of lists of [id, logprob];
    ``struct`` an object; ``structs`` a list of objects.
    """

    name: str
    shape: Shape
    leaves: tuple[Leaf, ...]
    size: str = ""
    """Expected list length: ``K`` draft tokens, ``K+1``, or empty when it is free."""
    required: bool = False
    carrier: str = ""
    """Of a field that holds objects: the key that is stored even when no object has it, so that the
    number of objects is known."""


def _scalar(number: int, name: str, kind: Kind = "int", *, required: bool = False) -> Field:
    return Field(name, "scalar", (Leaf(number, name, kind, 0),), required=required)


def _list(number: int, name: str, kind: Kind = "int", size: str = "", *, required: bool = False) -> Field:
    return Field(name, "list", (Leaf(number, name, kind, 1),), size, required)


def _pairs(number: int, name: str, size: str) -> Field:
    leaves = (
        Leaf(number, f"{name}.id", "int", 2),
        Leaf(number + 1, f"{name}.logprob", "float", 2),
    )
    return Field(name, "pairs", leaves, size)


REQUEST = "request"
EXTRA = "extra"

FIELDS: tuple[Field, ...] = (
    _scalar(1, "request", required=True),
    _scalar(2, "step", required=True),
    _scalar(3, "batch_row"),
    _scalar(4, "rank"),
    _scalar(5, "engine_step"),
    _scalar(6, "max_batch_length"),
    _scalar(7, "position", required=True),
    _list(8, "draft_ids", size="K"),
    _list(9, "proposal_ids", size="K", required=True),
    _list(10, "parents", size="K"),
    _list(11, "draft_logprobs", "float", "K"),
    _list(12, "draft_entropy", "float", "K"),
    _pairs(13, "draft_top", "K"),
    _list(15, "draft_positions", size="K"),
    Field(
        "draft_inputs",
        "structs",
        (
            Leaf(16, "draft_inputs.rms", "float", 1),
            Leaf(57, "draft_inputs.token_position", "int", 1),
            Leaf(17, "draft_inputs.extra", "str", 1),
        ),
        carrier="rms",
    ),
    _list(18, "target_ids", size="K+1"),
    _list(19, "target_logprobs", "float", "K"),
    _list(20, "target_ranks", size="K"),
    _list(21, "target_gaps", "float", "K+1"),
    _pairs(22, "target_top", "K+1"),
    _list(24, "overlaps", "float", "K"),
    _scalar(25, "logits_kind", "str"),
    _scalar(26, "num_accepted", required=True),
    _scalar(27, "num_accepted_reported"),
    _list(28, "accepted_nodes"),
    _list(29, "emitted_ids", required=True),
    _scalar(30, "final_kind", "str"),
    _scalar(31, "stop", "str"),
    _scalar(32, "segment", "str"),
    _scalar(33, "segment_boundary"),
    _scalar(34, "draft_kv_length"),
    _scalar(35, "target_kv_length"),
    _scalar(36, "prefix_hit_length"),
    _list(37, "mask", "str"),
    _scalar(38, "processor_tokens"),
    Field(
        "taps",
        "structs",
        (
            Leaf(39, "taps.boundary", "int", 1),
            Leaf(40, "taps.index", "int", 1),
            Leaf(41, "taps.position", "int", 1),
            Leaf(42, "taps.shape", "int", 2),
            Leaf(43, "taps.dtype", "str", 1),
            Leaf(44, "taps.rms", "float", 1),
            Leaf(45, "taps.nonfinite", "int", 1),
            Leaf(46, "taps.projections", "float", 2),
            Leaf(47, "taps.extra", "str", 1),
        ),
        carrier="dtype",
    ),
    Field(
        "nonfinite",
        "struct",
        (
            Leaf(48, "nonfinite.draft_logits", "int", 0),
            Leaf(49, "nonfinite.target_logits", "int", 0),
            Leaf(50, "nonfinite.extra", "str", 0),
        ),
        carrier="draft_logits",
    ),
    _scalar(51, "draft_ns"),
    _scalar(52, "verify_ns"),
    _scalar(53, "step_ns"),
    _scalar(54, "started_ns"),
    _list(55, "flags", "str"),
    _scalar(56, EXTRA, "str"),
)
"""Every field in the order in which JSON lines print it.

`request` is stored as the number that a `reqs` frame gave to the name; `extra` holds unknown keys as
JSON text.
"""

FIELD_BY_NAME: dict[str, Field] = {field.name: field for field in FIELDS}
LEAVES: tuple[Leaf, ...] = tuple(leaf for field in FIELDS for leaf in field.leaves)
LEAF_BY_NUMBER: dict[int, Leaf] = {leaf.number: leaf for leaf in LEAVES}
LEAF_BY_PATH: dict[str, Leaf] = {leaf.path: leaf for leaf in LEAVES}
REQUIRED: tuple[str, ...] = tuple(field.name for field in FIELDS if field.required)
TAP_REQUIRED: tuple[str, ...] = ("shape", "dtype")
"""Keys every tap must have."""
