"""What waits in a writer's queue: one item a call, resolved and checked on the writing thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, ClassVar

import numpy as np

from spectrace.format.columns import FieldFault

MAX_STEPS = 1 << 24
"""Most steps in one call."""


Group = tuple[int, Mapping[str, Any]]
"""A number of steps, and their arrays."""
Deferred = Group | list[Group] | None
"""What a function returns that gives steps when it is called."""


@dataclass(slots=True)
class Batch:
    """One call of the writer that gave steps as arrays, waiting in its queue."""

    kind: ClassVar[str] = "batch"
    num_rows: int
    arrays: Mapping[str, Any] | Callable[[], Deferred]
    copies: list[Any] | None = None
    """Where the engine may change its arrays: their bytes as they were given, in the same order. An array
    is then asked for its dtype and shape only; copying bytes costs half as much as copying an array."""

    @property
    def given(self) -> Batch:
        """Itself, as an `Item` has something given."""
        return self

    def copied(self) -> Mapping[str, Any]:
        """The arrays as they were given.

        Raises:
            FieldFault: an array holds Python objects, whose bytes say nothing.
        """
        assert not callable(self.arrays)
        if self.copies is None:
            return self.arrays
        return {n: _restored(n, a, c) for (n, a), c in zip(self.arrays.items(), self.copies, strict=True)}


def _restored(name: str, given: Any, copy: Any) -> Any:
    if type(given) is tuple:
        return tuple([_restored(name, part, part_copy) for part, part_copy in zip(given, copy, strict=True)])
    if type(copy) is not bytes:
        return copy
    if given.dtype.hasobject:
        raise FieldFault(name, "a list, or an array of numbers; it is an array of Python objects")
    return np.frombuffer(copy, given.dtype).reshape(given.shape)


@dataclass(slots=True)
class Item:
    """Any other call of the writer, waiting in its queue."""

    kind: str
    """step | request | amend | tokens | reference | gap."""
    given: Any

    @property
    def num_rows(self) -> int:
        """Steps in it."""
        return int(self.kind == "step")


def called(item: Item | Batch) -> list[Item | Batch]:
    """The item, or what it returns where it is deferred: nothing, steps, or several groups of steps."""
    if isinstance(item, Batch):
        if not callable(item.arrays):
            return [item]
        given = item.arrays()
        groups = [] if given is None else given if isinstance(given, list) else [given]
        return [Batch(num_steps(rows), arrays) for rows, arrays in groups]
    if item.kind != "step" or not callable(item.given):
        return [item]
    fields = item.given()
    return [] if fields is None else [Item("step", fields)]


def num_steps(given: Any) -> int:
    """A number of steps, whatever integer type it has.

    Raises:
        FieldFault: it is none.
    """
    number = index(given) if hasattr(given, "__index__") else -1
    if not 0 <= number <= MAX_STEPS:
        raise FieldFault("num_rows", f"a number of steps, at most {MAX_STEPS:,}")
    return number
