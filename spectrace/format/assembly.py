"""Columns back to row values, one field at a time, when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from spectrace.format.columns import MAX_OBJECTS, Column, Columns, FieldFault, need_alike
from spectrace.format.fields import Field
from spectrace.format.frames import is_shallow
from spectrace.format.records import Tap


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
