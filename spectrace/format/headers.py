"""Header records <-> plain mappings: the JSON shape of trace-model.

`load` builds a frozen record from a mapping and checks every type by the record's own annotations;
`dump` does the reverse and drops what is missing. Unknown keys are never an error: they stay in the
mapping that the file holds.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from spectrace.errors import UsageError
from spectrace.format.records import SCHEMA, Run
from spectrace.format.shredding import NAMED_FLOATS

R = TypeVar("R")
Report = Callable[[str, str], None]
"""Called with the path of a field and what was expected there."""


def dump(record: Any) -> dict[str, Any]:
    """The record as plain mappings and lists, without what is missing."""
    return {
        item.name: plain(value)
        for item in fields(record)
        if (value := getattr(record, item.name)) is not None and value != {}
    }


def plain(value: Any) -> Any:
    """Records, mappings, sequences and arrays as the values that a file holds."""
    if is_dataclass(value) and not isinstance(value, type):
        return dump(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def run_mapping(run: Run | Mapping[str, Any]) -> dict[str, Any]:
    """A run header as the JSON object that is stored.

    Raises:
        UsageError: it is no mapping, or asks for a schema that this package does not write.
    """
    if not isinstance(run, (Run, Mapping)):
        raise UsageError(f"run must be a spectrace.Run or a mapping of its fields, not {type(run).__name__}")
    fields: dict[str, Any] = dump(run) if isinstance(run, Run) else plain(run)
    fields.pop("record", None)
    header = {"schema": SCHEMA, **fields}
    if header["schema"] != SCHEMA:
        raise UsageError(f"run.schema must be {SCHEMA}, the schema that this spectrace writes")
    return header


def may_lack_ids(run: Mapping[str, Any]) -> bool:
    """Whether `proposal_ids` and `emitted_ids` may hold null: pack dropped them, or nobody knew them."""
    capture = run.get("capture")
    unavailable = capture.get("unavailable") if isinstance(capture, Mapping) else None
    names = unavailable if isinstance(unavailable, Mapping) else {}
    return "packed" in run or "proposal_ids" in names or "emitted_ids" in names


def deep_merge(base: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the keys of ``update`` over it; maps are merged key by key.

    >>> deep_merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b": 4})
    {'a': {'x': 1, 'y': 3}, 'b': 4}
    """
    merged = dict(base)
    for key, value in update.items():
        mine = merged.get(key)
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            value = deep_merge(mine, value)
        merged[key] = value
    return merged


# --- loading -----------------------------------------------------------------------------------


def load(cls: type[R], mapping: Mapping[str, Any], report: Report, where: str = "") -> R:
    """A record from a mapping.

    Args:
        cls: a record class of records.py.
        mapping: the JSON object.
        report: told of every field of the wrong type; such a field is left missing.
        where: path of the mapping within its record, for the report.
    """
    given = {}
    for name, annotation in _annotations(typing.cast(type, cls)).items():
        value = mapping.get(name)
        if value is None:
            continue
        path = f"{where}.{name}" if where else name
        loaded = _value(annotation, value, report, path)
        if loaded is not None:
            given[name] = loaded
    return cls(**given)


@cache
def _annotations(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls)}


def _value(annotation: Any, value: Any, report: Report, path: str) -> Any:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in args if arg is not type(None)]
        return _value(inner[0], value, report, path)
    if annotation is Any:
        return value
    if is_dataclass(annotation):
        if not isinstance(value, Mapping):
            return report(path, "an object")
        return load(typing.cast(type, annotation), value, report, path)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return report(path, "an object")
        items = {k: _value(args[1], v, report, f"{path}.{k}") for k, v in value.items()}
        return {k: v for k, v in items.items() if v is not None or args[1] is Any}
    if origin is not None and issubclass(origin, Sequence):
        return _sequence(args[0], value, report, path)
    value = _named_float(annotation, value)
    return value if _is_scalar(annotation, value) else report(path, _NAMES[annotation])


def _sequence(inner: Any, value: Any, report: Report, path: str) -> Any:
    if not isinstance(value, (list, tuple)):
        return report(path, "a list")
    if inner in _NAMES:
        value = [_named_float(inner, item) for item in value]
        if not all(_is_scalar(inner, item) for item in value):
            return report(path, f"a list in which every item is {_NAMES[inner]}")
        return tuple(value)
    return tuple(_value(inner, item, report, f"{path}[{i}]") for i, item in enumerate(value))


_NAMES = {str: "text", int: "an integer", float: "a number", bool: "true or false"}


def _named_float(annotation: Any, value: Any) -> Any:
    """The number that JSON lines write as text, where a number belongs."""
    return NAMED_FLOATS.get(value, value) if annotation is float and isinstance(value, str) else value


def _is_scalar(annotation: Any, value: Any) -> bool:
    if annotation is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, annotation)
