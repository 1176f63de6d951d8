"""What leaves the scheduler's thread: a record per event, its numbers still on their way from the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spectrace_serving.clock import Moment
from spectrace_serving.requests import Finished, Started
from spectrace_serving.rows import Taps
from spectrace_transformers.reduction import Array

Arrays = Callable[[], Mapping[str, Array]]
"""Waits for the device."""


@dataclass(slots=True, kw_only=True)
class Drafted:
    """A proposal of n - 1 nodes for each of B requests, made in the same round as its verification."""

    started: Moment
    ended: Moment
    arrays: Arrays | None
    """None where the draft's own values did not pass the hooks."""
    topk: int


@dataclass(slots=True, kw_only=True)
class Verified:
    """One forward of the target over B requests of n nodes each, and what was decided; of prompts n is 1."""

    engine_step: int
    requests: Sequence[str]
    """[B] names, in the order of the batch."""
    num_nodes: int
    """n, the root with it."""
    is_tree: bool
    started: Moment
    """Of the forward."""
    ended: Moment
    arrays: Arrays
    taps: Taps | None
    drafted: Drafted | None = None
    prompts: Sequence[tuple[int, bool]] | None = None
    """Of a forward over prompts: [B] committed length, and whether the token is thrown away."""
    is_lost: bool = False
    """Already counted as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """What the draft thinks of the first token of the next proposal, for B requests."""

    requests: Sequence[str]
    arrays: Arrays


Event = Started | Finished | Verified | Seeded
