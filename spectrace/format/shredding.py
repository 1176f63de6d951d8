"""Rows, or an engine's arrays, to columns: every value is held against the kind of its field here.

The reverse is `assembly.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any

import numpy as np

from spectrace.format.columns import Array, Column, Columns, FieldFault, need_alike
from spectrace.format.fields import (
    FIELD_BY_NAME,
    FIELDS,
    LEAF_BY_PATH,
    REQUIRED,
    TAP_REQUIRED,
    Field,
    Leaf,
)
from spectrace.format.frames import MAX_DEPTH, is_shallow

_FIELDS_WITHOUT_IDS = tuple(
    replace(field, required=field.required and field.shape == "scalar") for field in FIELDS
)
"""The fields where ids may be unknown, though not how many there are."""


def shred(rows: Sequence[Mapping[str, Any]], *, may_lack_ids: bool = False) -> Columns:
    """Columns of the fields that any row has.

    Args:
        rows: one mapping per step, keys named as the fields of `Step`; unknown keys go to `extra`.
        may_lack_ids: the ids of required lists may be null; how many there are is known all the same.

    Raises:
        FieldFault: a value does not fit its field; the row is named.
    """
    columns: Columns = {}
    rows = [_with_extra(row) for row in rows]
    for field in _FIELDS_WITHOUT_IDS if may_lack_ids else FIELDS:
        given = [row.get(field.name) for row in rows]
        if all(value is None for value in given):
            continue
        present = np.fromiter((value is not None for value in given), bool, len(given))
        found = [value for value in given if value is not None]
        try:
            made = [_leaf_column(field, leaf, found) for leaf in field.leaves]
        except FieldFault as fault:
            raise _with_row(field, fault, given) from None
        for column in made:
            if column is not None:
                column.present = None if present.all() else present
                columns[column.leaf.path] = column
    return columns


def _with_extra(row: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = {key: value for key, value in row.items() if key not in FIELD_BY_NAME}
    if not unknown:
        return row
    return {**row, "extra": _json_text("extra", unknown)}


def _json_text(field: str, value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise FieldFault(field, "a value that JSON can hold") from None
    if not is_shallow(value):
        raise FieldFault(field, f"nested at most {MAX_DEPTH} deep")
    return text


def _with_row(field: Field, fault: FieldFault, given: Sequence[Any]) -> FieldFault:
    """The same fault, with the first row that has it."""
    for row, value in enumerate(given):
        if value is None:
            continue
        try:
            for leaf in field.leaves:
                _leaf_column(field, leaf, [value])
        except FieldFault as found:
            return FieldFault(found.field, found.expected, row)
    return fault


def _leaf_column(field: Field, leaf: Leaf, found: Sequence[Any]) -> Column | None:
    """One leaf over the rows that have the field; None for an optional key nobody has."""
    slots: list[Any] = [_leaf_value(field, leaf, value) for value in found]
    is_optional_key = bool(field.carrier) and leaf.key != field.carrier
    lengths: list[Array] = []
    for level in range(leaf.depth):
        _need_lists(field, leaf, slots)
        lengths.append(np.fromiter(map(len, slots), np.int64, len(slots)))
        slots = list(chain.from_iterable(slots))
        if is_optional_key and all(slot is None for slot in slots) and level == 0:
            return None
        if level + 1 < leaf.depth and field.shape == "structs":
            slots = [() if slot is None else slot for slot in slots]
    known = np.fromiter((slot is not None for slot in slots), bool, len(slots))
    if is_optional_key and leaf.depth == 0 and not known.any():
        return None
    if field.required and not known.all():
        raise FieldFault(leaf.path, _expected(field, leaf))
    values = slots if known.all() else [slot for slot in slots if slot is not None]
    array, words = _flat_array(field, leaf, values)
    return Column(leaf, array, tuple(lengths), None, None if known.all() else known, words)


def _need_lists(field: Field, leaf: Leaf, slots: Sequence[Any]) -> None:
    for slot in slots:
        if not isinstance(slot, (list, tuple, np.ndarray)):
            raise FieldFault(leaf.path, _expected(field, leaf))


def _leaf_value(field: Field, leaf: Leaf, value: Any) -> Any:
    """The part of a field's value that one leaf stores."""
    if field.shape == "scalar":
        return value
    if field.shape == "list":
        if isinstance(value, str) and leaf.kind == "str":
            return [value]
        return value
    if field.shape == "struct":
        return _key_of(field, leaf, value)
    _need_lists(field, leaf, [value])
    if field.shape == "structs":
        return [_key_of(field, leaf, item) for item in value]
    which = 0 if leaf is field.leaves[0] else 1
    return [[_pair_part(field, pair, which) for pair in _node(field, node)] for node in value]


def _node(field: Field, node: Any) -> Any:
    _need_lists(field, field.leaves[0], [node])
    return node


def _pair_part(field: Field, pair: Any, which: int) -> Any:
    try:
        first, second = pair
    except (TypeError, ValueError):
        raise FieldFault(field.name, "lists of [id, logprob] pairs") from None
    return (first, second)[which]


def _key_of(field: Field, leaf: Leaf, item: Any) -> Any:
    if not isinstance(item, Mapping):
        raise FieldFault(field.name, _expected(field, leaf))
    if leaf.key != "extra":
        return item.get(leaf.key)
    keys = {other.key for other in field.leaves}
    unknown = {key: value for key, value in item.items() if key not in keys}
    return _json_text(leaf.path, unknown) if unknown else None


_EXPECTED = {"int": "an integer", "float": "a number", "str": "text"}
_EXPECTED_LIST = {"int": "integers", "float": "numbers", "str": "texts"}


def _expected(field: Field, leaf: Leaf) -> str:
    if field.shape == "pairs":
        return "a list of lists of [id, logprob] pairs"
    if field.shape == "structs" and not leaf.key:
        return "a list of objects"
    if leaf.depth == 0:
        return _EXPECTED[leaf.kind]
    if field.shape in ("structs", "struct"):
        inner = _EXPECTED[leaf.kind] if leaf.depth == 1 else f"a list of {_EXPECTED_LIST[leaf.kind]}"
        return f"{inner} in each object of a list"
    return f"a list of {_EXPECTED_LIST[leaf.kind]}"


def _flat_array(field: Field, leaf: Leaf, values: Sequence[Any]) -> tuple[Array, tuple[str, ...]]:
    """Values as one array of the leaf's kind, and the words of a text leaf."""
    if leaf.kind == "str":
        return _intern(field, leaf, values)
    if any(isinstance(value, (bool, str, np.bool_)) for value in values):
        values = _with_named_floats(field, leaf, values)
    try:
        array = np.array(values, np.int64 if not values and leaf.kind == "int" else None)
    except (ValueError, OverflowError, TypeError):
        raise FieldFault(leaf.path, _expected(field, leaf)) from None
    if array.ndim != 1:
        raise FieldFault(leaf.path, _expected(field, leaf))
    if leaf.kind == "int":
        if array.dtype.kind not in "iu":
            array = _large_ints(field, leaf, values)
        return array, ()
    if array.dtype.kind not in "iuf":
        raise FieldFault(leaf.path, _expected(field, leaf))
    return array if array.dtype.kind == "f" else array.astype(np.float64), ()


NAMED_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""How JSON lines write what JSON has no number for."""


def _with_named_floats(field: Field, leaf: Leaf, values: Sequence[Any]) -> Sequence[Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, str) and leaf.kind == "float" and value in NAMED_FLOATS:
            return NAMED_FLOATS[value]
        if isinstance(value, (bool, str, np.bool_)):
            raise FieldFault(leaf.path, _expected(field, leaf))
        return value

    return [plain(value) for value in values]


def _large_ints(field: Field, leaf: Leaf, values: Sequence[Any]) -> Array:
    """Integers that need the 64th bit, of which numpy makes floats unless told otherwise."""
    if all(isinstance(value, (int, np.integer)) and 0 <= value < 2**64 for value in values):
        return np.array(values, np.uint64)
    raise FieldFault(leaf.path, _expected(field, leaf) + " of 64 bits")


def _intern(field: Field, leaf: Leaf, values: Sequence[Any]) -> tuple[Array, tuple[str, ...]]:
    codes: dict[str, int] = {}
    flat = []
    for value in values:
        if not isinstance(value, str):
            raise FieldFault(leaf.path, _expected(field, leaf))
        flat.append(codes.setdefault(value, len(codes)))
    return np.array(flat, np.int64), tuple(codes)


def need_required(row: Mapping[str, Any]) -> None:
    """Whether a row has what every step must have.

    Raises:
        FieldFault: a field, or a key of a tap, is missing.
    """
    for name in REQUIRED:
        if row.get(name) is None:
            raise FieldFault(name, "given: it is missing")
    taps = row.get("taps")
    for tap in taps if isinstance(taps, (list, tuple)) else ():
        if isinstance(tap, Mapping) and not all(key in tap for key in TAP_REQUIRED):
            raise FieldFault("taps", "objects that have shape and dtype")


# --- arrays to columns -------------------------------------------------------------------------


def from_arrays(num_rows: int, arrays: Mapping[str, Any]) -> Columns:
    """Columns from an engine's arrays, without visiting a row.

    Args:
        num_rows: number of steps B.
        arrays: by field (or ``field.key``), an array with one row per step: [B] for a scalar, [B, K]
            for a list, [B, K, m] for a list of lists; text as lists of the same axes; or a pair
            ``(flat, lengths)`` where steps have lists of different length. `draft_top` and
            `target_top` are given as ``draft_top.id`` and ``draft_top.logprob``.

    Raises:
        FieldFault: no such field, or the array does not have one row per step.
    """
    columns: Columns = {}
    # Many fields have lists of the same lengths, which are looked at once.
    checked: dict[int, Array] = {}
    for path, given in arrays.items():
        leaf = LEAF_BY_PATH.get(path)
        if leaf is None:
            raise FieldFault(path, "the name of a field of Step")
        columns[path] = _array_column(num_rows, leaf, given, checked)
    for name in dict.fromkeys(column.leaf.field for column in columns.values()):
        field = FIELD_BY_NAME[name]
        need_alike(field, [columns[leaf.path] for leaf in field.leaves if leaf.path in columns])
    return columns


def _array_column(num_rows: int, leaf: Leaf, given: Any, checked: dict[int, Array]) -> Column:
    lengths: tuple[Array, ...] = ()
    if isinstance(given, tuple):
        given, ragged = given
        if id(ragged) not in checked:
            level = np.asarray(ragged, np.int64)
            if level.shape != (num_rows,) or (level < 0).any():
                raise FieldFault(leaf.path, f"given with {num_rows} lengths")
            checked[id(ragged)] = level
        lengths = (checked[id(ragged)],)
    if leaf.kind == "str":
        texts = np.asarray(given, object)
        codes, words = _intern(FIELD_BY_NAME[leaf.field], leaf, texts.reshape(-1).tolist())
        array: Array = codes.reshape(texts.shape)
    else:
        array, words = np.asarray(given), ()
        wanted = "iu" if leaf.kind == "int" else "f"
        if array.dtype.kind not in wanted:
            raise FieldFault(leaf.path, f"an array of {_EXPECTED_LIST[leaf.kind]}")
    if not lengths:
        if array.ndim != leaf.depth + 1 or len(array) != num_rows:
            raise FieldFault(leaf.path, f"an array of {leaf.depth + 1} axes and {num_rows} rows")
        lengths = _uniform_lengths(array.shape)
    else:
        if array.ndim != leaf.depth or int(lengths[0].sum()) != len(array):
            raise FieldFault(leaf.path, "as long as its lengths say")
        if leaf.depth == 2:
            lengths = (*lengths, np.full(len(array), array.shape[1], np.int64))
    return Column(leaf, array.reshape(-1), lengths, None, None, words)


def _uniform_lengths(shape: tuple[int, ...]) -> tuple[Array, ...]:
    counts = list(accumulate(shape, lambda a, b: a * b))
    return tuple(np.full(count, size, np.int64) for count, size in zip(counts, shape[1:], strict=False))
