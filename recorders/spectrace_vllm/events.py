"""What leaves the engine's thread: one record per event, its numbers still on their way from the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spectrace_serving.clock import Moment
from spectrace_serving.events import Arrays, Verification
from spectrace_serving.requests import Finished
from spectrace_serving.rows import Taps
from spectrace_transformers.reduction import Array


@dataclass(slots=True, kw_only=True)
class Verified(Verification):
    """A proposal of the engine step before was verified, and tokens were sampled."""

    counts: Array
    """[B] rows with logits: K + 1."""
    num_scheduled: Array
    """[B] tokens read."""
    discarded: Array | None
    """[B] the sample is thrown away; None where the number sampled says so."""


@dataclass(slots=True, kw_only=True)
class Proposed:
    """What was drafted for the next step of B requests."""

    engine_step: int
    requests: Sequence[str]
    started: Moment
    ended: Moment
    arrays: Arrays
    lists: Sequence[Sequence[int]] | None = None
    """[B] the proposals of a lookup on the host; None where they are in the arrays."""
    taps: Taps | None = None
    num_bytes: int
    """Memory that it holds until it is joined, roughly."""


Event = Finished | Verified | Proposed
