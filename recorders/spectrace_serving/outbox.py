"""What a hook hands over: small tensors, and on a CPU the reductions themselves, still to be run.

A GPU reduces while the engine's thread goes on. On a CPU that thread would do it itself, so there it only
keeps the rows and the writer's thread reduces them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from spectrace_serving.guard import Guard
from spectrace_transformers.reduction import Array, Pack

_EVENT_BYTES = 4096
"""What an event takes besides its numbers, roughly: names, times, objects."""


class Outbox(Pack):
    """Tensors of one event on their way to the writer's thread.

    Args:
        device: where the engine runs.
        guard: runs the reductions, each by its name.
    """

    def __init__(self, device: torch.device, guard: Guard) -> None:
        super().__init__(device)
        self._guard = guard
        self._waiting: list[tuple[str, Callable[..., None], tuple[Any, ...]]] = []
        self._reduced: set[str] = set()
        """Names of what reductions have added."""

    @property
    def num_bytes(self) -> int:
        """Memory that the event holds until it is taken: of what waits to be reduced, the rows."""
        held = (args for _, _, args in self._waiting)
        rows = sum(tensor.numel() * tensor.element_size() for tensor in _rows(held))
        return _EVENT_BYTES + super().num_bytes + rows

    def kept(self, rows: Tensor) -> Tensor:
        """Rows that the engine is about to change, as they are now, where they are reduced later."""
        return rows.clone() if self.device.type == "cpu" else rows

    def reduce(self, name: str, action: Callable[..., None], *args: Any) -> None:
        """Runs ``action(self, *args)``, which adds results: now on a GPU, on a CPU when they are asked for.

        Args:
            name: of the action, for the guard.
            action: takes tensors that nobody else writes to.
            args: of the action, after the outbox.
        """
        if self.device.type == "cpu":
            self._waiting.append((name, action, args))
            return
        self._reduced |= self._run(name, action, args)

    def _run(self, name: str, action: Callable[..., None], args: tuple[Any, ...]) -> set[str]:
        """Names of what an action has added: all or, where it fails, nothing."""
        before = set(self._tensors)
        is_done = self._guard(name, _to_its_end, action, self, *args)
        added = self._tensors.keys() - before
        if is_done:
            return added
        for half in added:
            del self._tensors[half]
        return set()

    def drop(self) -> None:
        """Lets go of all that reductions have added or would; ids, lengths and places stay."""
        self._waiting.clear()
        for name in self._reduced:
            del self._tensors[name]
        self._reduced.clear()

    def send(self) -> Callable[[], Mapping[str, Array]]:
        """Starts the copy to the host, where one is needed; the result waits for it, or reduces."""
        return self._arrays if self.device.type == "cpu" else super().send()

    def _arrays(self) -> Mapping[str, Array]:
        waiting, self._waiting = self._waiting, []  # whose rows nobody needs from here on
        with torch.inference_mode():
            for name, action, args in waiting:
                self._run(name, action, args)
        return super().send()()


def _to_its_end(action: Callable[..., None], *args: Any) -> bool:
    action(*args)
    return True


def _rows(held: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors of real numbers among some arguments; ids are few, and a map is held once for all."""
    for value in held:
        if isinstance(value, (tuple, list)):
            yield from _rows(value)
        elif isinstance(value, Tensor) and value.is_floating_point():
            yield value
