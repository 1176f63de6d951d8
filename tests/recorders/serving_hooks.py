"""Hooks on tensors that have no values (device `meta`): whichever waits for a value fails. Imports no engine.

What a real GPU adds is stood in for or left out: the copy to the host, marks in its stream, pinned memory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from spectrace_serving.guard import Guard
from spectrace_serving.join import Joiner
from spectrace_transformers.reduction import Pack


@dataclass
class Watched:
    """What the hooks did on the engine's thread."""

    names: set[str] = field(default_factory=set)
    """Under which the guard ran something."""
    failed: list[str] = field(default_factory=list)
    """What raised, and what asked the device to finish."""
    events: Counter[str] = field(default_factory=Counter)
    """What was handed over, by kind; none is joined, since its arrays have no values."""


def watch_hooks(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Follows every hook of the recordings that begin from here on."""
    watched = Watched()

    def guard(self: Any, name: str, action: Any, *args: Any) -> Any:
        watched.names.add(name)
        try:
            return action(*args)
        except Exception as error:
            watched.failed.append(f"{name}: {error}")
            raise

    def put(self: Any, event: Any) -> None:
        watched.events[type(event).__name__] += 1

    monkeypatch.setattr(Guard, "__call__", guard)
    monkeypatch.setattr(Joiner, "put", put)
    monkeypatch.setattr(Pack, "send", lambda self: lambda: {})
    for holder in (torch.cuda, torch.cuda.Event, torch.cuda.Stream, torch.accelerator):
        monkeypatch.setattr(holder, "synchronize", lambda *_: watched.failed.append("synchronize"))
    return watched


def check_nothing_is_there() -> None:
    """Whatever looks at a value of such a tensor fails, so that a hook that did would have."""
    for look in ("item", "tolist", "cpu", "numpy", "nonzero", "__bool__"):
        with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
            getattr(torch.zeros(1, device="meta"), look)()
