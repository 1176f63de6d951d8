"""Events of an engine's thread in, steps out: the queue between both, and who is known by which name.

How events make steps is the engine's own; nothing here looks into one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from spectrace.format.items import Group
from spectrace_serving.requests import Finished, Progress, Started
from spectrace_serving.rows import Rules

P = TypeVar("P", bound=Progress)
T = TypeVar("T")


class Joiner(ABC, Generic[P]):
    """Takes events on any thread, joins them on the writer's.

    Args:
        rules: what holds for the whole run.
        progress: makes what is kept of a request between its steps.
    """

    def __init__(self, rules: Rules, progress: Callable[[Started], P]) -> None:
        self.rules = rules
        self.requests: dict[str, P] = {}
        self._progress = progress
        self._events: deque[Any] = deque()
        self._ready: list[Group] = []
        # Each is written by one side only.
        self._put_bytes = self._taken_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Memory of the events that wait, roughly."""
        return self._put_bytes - self._taken_bytes

    def put(self, event: Any) -> None:
        """Adds an event; called on the engine's thread, and with a request's end on any."""
        if not isinstance(event, (Started, Finished)):
            self._put_bytes += event.num_bytes
        self._events.append(event)

    def take(self) -> list[Group]:
        """All steps that are finished by now, in groups that have the same fields."""
        while self._events:
            event = self._events.popleft()
            if isinstance(event, Started):
                self.requests[event.request] = self._progress(event)
                continue
            if not isinstance(event, Finished):
                self._taken_bytes += event.num_bytes
            self._ready.extend(self.join(event))
            if isinstance(event, Finished):
                for name in event.requests:
                    self.requests.pop(name, None)
        found, self._ready = self._ready, []
        return found

    @abstractmethod
    def join(self, event: Any) -> Iterable[Group]:
        """The steps that an event completes; `Finished` is told before its requests are forgotten."""

    def going_on(self, names: Sequence[str]) -> Iterator[tuple[int, P]]:
        """Row in a batch and state of each request that is recorded and not over."""
        for at, name in enumerate(names):
            request = self.requests.get(name)
            if request is not None and not request.is_over:
                yield at, request


def grouped(rows: Iterable[T | None], key: Callable[[T], Any]) -> Iterable[list[T]]:
    """The rows that have the same fields, together; those that came to nothing are left out."""
    groups: dict[Any, list[T]] = {}
    for row in rows:
        if row is not None:
            groups.setdefault(key(row), []).append(row)
    return groups.values()
