"""Pairs of traces, made of what each request committed and how each run cut it into steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace import Trace
from spectrace.testing import write_trace
from tests.analysis.comparison.cutting import GREEDY, steps_of

Record = Mapping[str, Any]


@pytest.fixture
def cut() -> Callable[..., list[dict[str, Any]]]:
    """Cut a text into steps; see `steps_of`."""
    return steps_of


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Callable[..., Trace]]:
    """Write a trace of steps and open it; greedy, bfloat16 and of one prompt unless told otherwise."""
    opened: list[Trace] = []

    def make(
        steps: Iterable[Record],
        run: Record | None = None,
        requests: Iterable[Record] = ({"request": "r0", "prompt_digest": "sha256:aa"},),
    ) -> Trace:
        path = tmp_path / f"trace{len(opened)}.spectrace"
        write_trace(path, steps, run=GREEDY if run is None else run, requests=requests)
        opened.append(spectrace.open(path))
        return opened[-1]

    yield make
    for trace in opened:
        trace.close()
