"""What a hook hands over: small tensors, and on a CPU the reductions themselves, still to be run.

A GPU reduces while the engine's thread goes on. On a CPU that thread would do it itself, so there it only
keeps the rows and the writer's thread reduces them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from spectrace_serving.guard import Guard
from spectrace_transformers.reduction import Array, Pack


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
        else:
            self._guard(name, action, self, *args)

    def send(self) -> Callable[[], Mapping[str, Array]]:
        """Starts the copy to the host, where one is needed; the result waits for it, or reduces."""
        return self._reduced if self.device.type == "cpu" else super().send()

    def _reduced(self) -> Mapping[str, Array]:
        with torch.inference_mode():
            for name, action, args in self._waiting:
                self._guard(name, action, self, *args)
        return super().send()()
