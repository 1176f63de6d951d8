"""Traces of serving engines, real or stood in for, as their tests read them. Imports no engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import spectrace


def trace_of(folder: Path) -> Path:
    """The one trace in a folder."""
    found = sorted(folder.glob("*.spectrace"))
    assert len(found) == 1, f"{folder}: {len(found)} traces"
    return found[0]


def by_request(path: Path) -> dict[str, list[Any]]:
    """The steps of each request in their order; a trace that was closed has no damage."""
    found: dict[str, list[Any]] = {}
    with spectrace.open(path) as trace:
        assert trace.state != "closed" or not list(trace.problems)
        for step in sorted(trace, key=lambda step: step.step):
            found.setdefault(step.request, []).append(step)
    return found


def header(path: Path) -> Any:
    """The header; untyped, since what is missing in it fails a test anyway."""
    with spectrace.open(path) as trace:
        return trace.run
