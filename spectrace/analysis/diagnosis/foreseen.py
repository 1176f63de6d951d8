"""How often a target goes on with what its prompts repeat, and the draft there.

Takes from a prompt the shortest run of tokens that it ends with three times; what comes next is that run
again. Judges nothing: see `control_runs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from spectrace.analysis.intervals import Share

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

_MAX_STEPS, _MAX_REQUESTS = 10_000, 64
_MAX_PROMPT = 2048
"""Tokens of a prompt's end that are searched for a pattern: a search costs their square."""
_TIMES = 3
"""How often a prompt must say the same: twice may be chance."""


class Foreseen(NamedTuple):
    """Steps with a proposal of requests whose prompts repeat themselves."""

    kept: Share
    """In which the target's first token was the one the pattern foresees."""
    accepted: Share
    """Of those, in which the draft's first token was accepted."""


def pattern(prompt_ids: Sequence[int]) -> Sequence[int]:
    """What a prompt repeats at its end; empty where it repeats nothing.

    >>> pattern([9, 1, 2, 1, 2, 1, 2]), pattern([1, 2, 1, 2])
    ([1, 2], [])
    """
    ids = list(prompt_ids[-_MAX_PROMPT:])
    for size in range(1, len(ids) // _TIMES + 1):
        if ids[-_TIMES * size : -size] == ids[-(_TIMES - 1) * size :]:
            return ids[-size:]
    return []


def foreseen(trace: Trace) -> Foreseen | None:
    """Counts the steps of a trace, the first of a long one; None where no prompt repeats itself.

    Args:
        trace: an open trace; without ids of prompts nothing is foreseen.
    """
    patterns: dict[str, tuple[int, Sequence[int]]] = {}
    for request in islice(trace.requests, _MAX_REQUESTS):
        if request.prompt_ids and (found := pattern(request.prompt_ids)):
            patterns[request.request] = (len(request.prompt_ids), found)
    if not patterns:
        return None
    steps = kept = accepted = 0
    for step in islice(trace, _MAX_STEPS):
        if step.request not in patterns or not step.proposal_ids or not step.emitted_ids:
            continue
        length, again = patterns[step.request]
        steps += 1
        if step.emitted_ids[0] == again[(step.position - length) % len(again)]:
            kept += 1
            accepted += step.num_accepted > 0
    return Foreseen(Share(kept, steps), Share(accepted, kept))
