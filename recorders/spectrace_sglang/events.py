"""What leaves the scheduler's thread: a record per event, its numbers still on their way from the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spectrace_serving.clock import Moment
from spectrace_serving.events import Arrays, Verification
from spectrace_serving.requests import Finished
from spectrace_serving.rows import Taps


@dataclass(slots=True, kw_only=True)
class Proposed:
    """What was drafted, n - 1 nodes for each of B requests, in the same round as it is verified."""

    started: Moment
    ended: Moment
    arrays: Arrays | None
    """None where the draft's own values did not pass the hooks."""
    topk: int
    num_bytes: int
    """Memory that it holds until it is joined, roughly."""


@dataclass(slots=True, kw_only=True)
class Verified(Verification):
    """Proposals of n nodes each were verified, or prompts were read; of prompts n is 1."""

    num_nodes: int
    """n, the root with it."""
    is_tree: bool
    taps: Taps | None
    proposed: Proposed | None = None
    prompts: Sequence[tuple[int, bool]] | None = None
    """Of a forward over prompts: [B] committed length, and whether the token is thrown away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """What the draft thinks of the first token of the next proposal, for B requests."""

    requests: Sequence[str]
    arrays: Arrays
    num_bytes: int
    """Memory that it holds until it is joined, roughly."""


Event = Finished | Verified | Seeded
