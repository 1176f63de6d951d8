"""Rows of step fields <-> columns of numbers.

`shred` turns row mappings into columns, `from_arrays` turns an engine's arrays into the same columns
without visiting a row, `assemble` turns columns back into row values on demand. No bytes here (see
wire.py) and no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

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
from spectrace.format.records import Tap

Array = npt.NDArray[Any]
MAX_OBJECTS = 1 << 17
"""Most objects (taps, draft inputs) of one field in one frame."""


class FieldFault(ValueError):
    """A value does not fit its field.

    Args:
        field: name of the field, or ``field.key``.
        expected: what belongs there.
        row: which of the rows given, where known.
    """

    def __init__(self, field: str, expected: str, row: int | None = None) -> None:
        self.field = field
        self.expected = expected
        self.row = row
        super().__init__(f"{field} must be {expected}")


@dataclass(slots=True)
class Column:
    """One leaf over the rows of a frame.

    ``values`` holds only what is there, flat. ``lengths[0]`` has one entry per row that has the
    field, ``lengths[1]`` one per element of those lists. ``present`` [rows] says which rows have the
    field (None: all); ``known`` [leaf slots] which elements hold a value (None: all). For text,
    ``values`` are indices into ``words``.
    """

    leaf: Leaf
    values: Array
    lengths: tuple[Array, ...] = ()
    present: Array | None = None
    known: Array | None = None
    words: tuple[str, ...] = ()


Columns = dict[str, Column]


# --- rows to columns ---------------------------------------------------------------------------


def shred(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Columns of the fields that any row has.

    Args:
        rows: one mapping per step, keys named as the fields of `Step`; unknown keys go to `extra`.

    Raises:
        FieldFault: a value does not fit its field; the row is named.
    """
    columns: Columns = {}
    rows = [_with_extra(row) for row in rows]
    for field in FIELDS:
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
    for path, given in arrays.items():
        leaf = LEAF_BY_PATH.get(path)
        if leaf is None:
            raise FieldFault(path, "the name of a field of Step")
        columns[path] = _array_column(num_rows, leaf, given)
    for name in dict.fromkeys(column.leaf.field for column in columns.values()):
        field = FIELD_BY_NAME[name]
        need_alike(field, [columns[leaf.path] for leaf in field.leaves if leaf.path in columns])
    return columns


def _array_column(num_rows: int, leaf: Leaf, given: Any) -> Column:
    lengths: tuple[Array, ...] = ()
    if isinstance(given, tuple):
        given, ragged = given
        lengths = (np.asarray(ragged, np.int64),)
        if lengths[0].shape != (num_rows,) or (lengths[0] < 0).any():
            raise FieldFault(leaf.path, f"given with {num_rows} lengths")
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


# --- joining and cutting -----------------------------------------------------------------------


def concatenate(parts: Sequence[tuple[int, Columns]]) -> Columns:
    """One set of columns from several, each given with its number of rows."""
    if len(parts) == 1:
        return parts[0][1]
    paths = dict.fromkeys(path for _, columns in parts for path in columns)
    leaves = sorted((LEAF_BY_PATH[path] for path in paths), key=lambda leaf: leaf.number)
    return {leaf.path: _joined(leaf, parts) for leaf in leaves}


def _joined(leaf: Leaf, parts: Sequence[tuple[int, Columns]]) -> Column:
    columns = [_of_part(leaf, num_rows, part) for num_rows, part in parts]
    lengths = tuple(
        np.concatenate([column.lengths[level] for column in columns]) for level in range(leaf.depth)
    )
    values, words = _join_values(columns)
    present = _join_flags([(c.present, rows) for c, (rows, _) in zip(columns, parts)])
    known = _join_flags([(c.known, _num_slots(c, rows)) for c, (rows, _) in zip(columns, parts)])
    return Column(leaf, values, lengths, present, known, words)


def _of_part(leaf: Leaf, num_rows: int, part: Columns) -> Column:
    """The part's column; where the part lacks it, one that says so for every row or element."""
    column = part.get(leaf.path)
    if column is not None:
        return column
    sibling = next((c for c in part.values() if c.leaf.field == leaf.field), None)
    nothing = np.zeros(0, np.int64)
    if sibling is None:
        return Column(leaf, nothing, (nothing,) * leaf.depth, np.zeros(num_rows, bool))
    lengths = sibling.lengths[:1]
    if leaf.depth == 2:
        return Column(leaf, nothing, (*lengths, np.zeros(lengths[0].sum(), np.int64)), sibling.present)
    slots = int(lengths[0].sum()) if leaf.depth else _num_present(sibling, num_rows)
    return Column(leaf, nothing, lengths[: leaf.depth], sibling.present, np.zeros(slots, bool))


def _num_present(column: Column, num_rows: int) -> int:
    return num_rows if column.present is None else int(column.present.sum())


def _num_slots(column: Column, num_rows: int) -> int:
    """Places for a value, known or not."""
    if column.lengths:
        return int(column.lengths[-1].sum())
    return _num_present(column, num_rows)


def _join_flags(parts: Sequence[tuple[Array | None, int]]) -> Array | None:
    if all(flags is None for flags, _ in parts):
        return None
    return np.concatenate([np.ones(n, bool) if flags is None else flags for flags, n in parts])


def join_arrays(parts: Sequence[Array]) -> Array:
    """Arrays one after the other, integers kept exact.

    numpy would make floats of signed and unsigned 64-bit integers together.
    """
    filled = [part for part in parts if part.size] or list(parts[:1])
    joined = np.concatenate(filled)
    if joined.dtype.kind == "f" and all(part.dtype.kind in "iu" for part in filled):
        wide = np.uint64 if all(part.min() >= 0 for part in filled) else np.int64
        joined = np.concatenate([part.astype(wide) for part in filled])
    return joined


def _join_values(columns: Sequence[Column]) -> tuple[Array, tuple[str, ...]]:
    if columns[0].leaf.kind != "str":
        return join_arrays([column.values for column in columns]), ()
    codes: dict[str, int] = {}
    parts = []
    for column in columns:
        table = np.array([codes.setdefault(w, len(codes)) for w in column.words] or [0], np.int64)
        parts.append(table[column.values.astype(np.int64)])
    return np.concatenate(parts), tuple(codes)


def slice_rows(columns: Columns, start: int, stop: int) -> Columns:
    """The columns of rows ``start`` to ``stop``."""
    return {path: _sliced(column, start, stop) for path, column in columns.items()}


def _sliced(column: Column, start: int, stop: int) -> Column:
    present = column.present
    if present is not None:
        start, stop, present = (
            int(present[:start].sum()),
            int(present[:stop].sum()),
            present[start:stop],
        )
    lengths = []
    for level in column.lengths:
        lengths.append(level[start:stop])
        start, stop = int(level[:start].sum()), int(level[:stop].sum())
    known = column.known
    if known is not None:
        start, stop, known = int(known[:start].sum()), int(known[:stop].sum()), known[start:stop]
    return Column(column.leaf, column.values[start:stop], tuple(lengths), present, known, column.words)


# --- columns to rows ---------------------------------------------------------------------------


def assemble(columns: Columns, num_rows: int, field: Field) -> list[Any] | None:
    """Row values of one field, None for rows that lack it; None when no row has it."""
    parts = [columns[leaf.path] for leaf in field.leaves if leaf.path in columns]
    if not parts:
        return None
    need_alike(field, parts)
    present = parts[0].present
    if field.shape in ("scalar", "list"):
        found = _leaf_rows(parts[0])
    elif field.shape == "pairs":
        found = _pair_rows(parts)
    else:
        found = _object_rows(field, parts)
    if present is None:
        return found
    iterator = iter(found)
    return [next(iterator, None) if there else None for there in present.tolist()]


def _leaf_rows(column: Column) -> list[Any]:
    """The leaf's values, nested as its lengths say: one entry per row that has it."""
    values: list[Any] = column.values.tolist()
    if column.words or column.leaf.kind == "str":
        values = [column.words[value] for value in values]
    if column.known is not None:
        iterator = iter(values)
        values = [next(iterator, None) if there else None for there in column.known.tolist()]
    nested: Sequence[Any] = values
    for lengths in reversed(column.lengths):
        ends = accumulate(lengths.tolist(), initial=0)
        flat = tuple(nested)
        nested = [flat[a:b] for a, b in pairwise(ends)]
    return list(nested)


def need_alike(field: Field, parts: Sequence[Column]) -> None:
    """Whether the columns of one field belong together.

    Raises:
        FieldFault: they are for different rows, or their lists are of different lengths.
    """
    if field.shape == "pairs" and len(parts) < 2:
        raise FieldFault(field.name, "given with its ids and its logprobs")
    first = parts[0]
    for other in parts[1:]:
        levels = 2 if field.shape == "pairs" else 1
        pairs = zip((first.present, *first.lengths[:levels]), (other.present, *other.lengths[:levels]))
        if not all(a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs):
            raise FieldFault(field.name, "given for the same rows and with the same lengths, key by key")


def _pair_rows(parts: Sequence[Column]) -> list[Any]:
    ids, logprobs = (_leaf_rows(column) for column in parts)
    return [
        tuple(tuple(zip(a, b)) for a, b in zip(row_ids, row_logprobs))
        for row_ids, row_logprobs in zip(ids, logprobs)
    ]


def _object_rows(field: Field, parts: Sequence[Column]) -> list[Any]:
    if field.shape == "structs" and int(parts[0].lengths[0].sum()) > MAX_OBJECTS:
        raise FieldFault(field.name, f"at most {MAX_OBJECTS:,} objects in one frame")
    keys = [column.leaf.key for column in parts]
    rows = zip(*(_leaf_rows(column) for column in parts))
    make = _object_maker(field, keys)
    if field.shape == "struct":
        return [make(row) for row in rows]
    return [tuple(make(item) for item in zip(*row)) for row in rows]


def _unknown_keys(field: Field, extra: str) -> dict[str, Any]:
    try:
        found = json.loads(extra)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not is_shallow(found):
        raise FieldFault(f"{field.name}.extra", "a JSON object")
    return found


def _object_maker(field: Field, keys: Sequence[str]) -> Callable[[Iterable[Any]], Any]:
    order = [leaf.key for leaf in field.leaves]

    def make(values: Iterable[Any]) -> Any:
        found = {k: v for k, v in zip(keys, values) if v is not None}
        if field.name == "taps" and found.get("projections") == ():
            del found["projections"]
        extra = found.pop("extra", None)
        item = {key: found[key] for key in order if key in found}
        if extra is not None:
            for key, value in _unknown_keys(field, extra).items():
                item.setdefault(key, value)
        return Tap(item) if field.name == "taps" else item

    return make
