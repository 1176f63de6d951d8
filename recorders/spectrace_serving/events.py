"""What leaves an engine's thread, as far as engines agree: events, their numbers still on their way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spectrace_serving.clock import Moment
from spectrace_transformers.reduction import Array

Arrays = Callable[[], Mapping[str, Array]]
"""Waits for the device."""


@dataclass(slots=True, kw_only=True)
class Verification:
    """One forward of the target over B requests, and what came of it."""

    engine_step: int
    requests: Sequence[str]
    """[B] names, in the order of the batch."""
    started: Moment
    ended: Moment
    arrays: Arrays
    num_bytes: int
    """Memory that it holds until it is joined, roughly."""
    is_lost: bool
    """Already counted as lost: of the arrays, ids alone are there."""
