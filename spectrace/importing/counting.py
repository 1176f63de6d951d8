"""Steps of which only counts are known: from lists in the order of the steps, or from a histogram.

A histogram has no order. Its steps are laid in one drawn with a fixed seed, so that no trend is made up, and
`capture.unavailable` says so. Sums are always those of the source.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spectrace.importing.reading import Refused

MAX_STEPS = 1 << 18
"""Most steps believed of one request: a histogram of a few bytes may claim any number."""
MAX_DRAFTED = 1024
"""Most draft tokens of one step."""
MAX_SUMMED = 1 << 18
"""Most tokens of a request of which only sums are known."""
BELIEVED = 1 << 22
"""What a file may claim whatever its size: in draft and emitted tokens, a step counted as `STEP_COST`."""
BELIEVED_PER_BYTE = 1 << 8
"""What it may claim beyond that for each byte: eight steps, about a hundred times what engines write."""
STEP_COST = 1 << 5
_SEED = 0

UNORDERED = "only a histogram is known: the steps stand in an order shuffled with a fixed seed"
FROM_ZERO = "the prompt's length is not known, positions count from 0"
NO_IDS = "counts only: the source has no token ids"
SUMMED = "only sums over a request are known: one step stands for all its rounds"
TOO_LOW = "rounds without a draft are not told: positions are too low by their tokens"
LENGTHS_LAID = "how many tokens each step drafted is not known, only their sum: it is laid out over the steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The steps of one request, as counts."""

    accepted: Sequence[int]
    drafted: Sequence[int]
    is_ordered: bool = True
    """They stand in the order in which they ran."""
    has_lengths: bool = True
    """How much each step drafted is known."""


def rounds_of_lists(accepted: Sequence[int], drafted: Sequence[int]) -> Rounds:
    """Steps in the order in which they ran.

    Raises:
        Refused: the lists do not fit each other.
    """
    if len(accepted) != len(drafted):
        raise Refused(
            f"{len(accepted):,} steps accepted and {len(drafted):,} drafted: the lists differ in length"
        )
    _check_size(len(accepted), max(drafted, default=0))
    for at, (a, d) in enumerate(zip(accepted, drafted)):
        if a > d:
            raise Refused(f"step {at} accepts {a:,} of {d:,} drafted tokens")
    return Rounds(accepted=accepted, drafted=drafted)


def rounds_of_histogram(histogram: Mapping[int, int], num_drafted: int, most: int | None) -> Rounds:
    """Steps of which a histogram and a sum are known.

    Args:
        histogram: accepted tokens of a step -> number of steps.
        num_drafted: draft tokens of all steps.
        most: draft tokens of a step at most, where that is known.

    Raises:
        Refused: no steps have these sums.
    """
    steps = sum(histogram.values())
    longest = max((a for a, number in histogram.items() if number), default=0)
    _check_size(steps, max(longest, most or 0))
    accepted = [a for a, number in sorted(histogram.items()) for _ in range(number)]
    random.Random(_SEED).shuffle(accepted)
    if num_drafted < sum(accepted):
        raise Refused(f"{sum(accepted):,} tokens are accepted of {num_drafted:,} drafted")
    limit = MAX_DRAFTED if most is None else most
    if longest > limit or num_drafted > steps * limit:
        raise Refused(f"{num_drafted:,} tokens are more than {steps:,} steps of at most {limit:,} draft")
    drafted = _laid_out(accepted, num_drafted, limit if most is not None else None)
    is_uniform = most is not None and num_drafted == steps * most
    return Rounds(accepted=accepted, drafted=drafted, is_ordered=False, has_lengths=is_uniform)


def _laid_out(accepted: Sequence[int], num_drafted: int, most: int | None) -> list[int]:
    """A number of draft tokens for each step: their sum is given, and none is below what was accepted.

    Every step gets one token at least while there are enough. The rest goes to the first steps up to the most
    that a step drafts, or evenly where no most is known.

    >>> _laid_out([0, 2, 1], 7, 3), _laid_out([0, 2, 1], 3, None)
    ([3, 3, 1], [0, 2, 1])
    """
    drafted = list(accepted)
    left = num_drafted - sum(drafted)
    for at, number in enumerate(drafted):
        if left and not number:
            drafted[at], left = 1, left - 1
    if most is None:
        each, over = divmod(left, len(drafted)) if drafted else (0, 0)
        return [number + each + (at < over) for at, number in enumerate(drafted)]
    for at, number in enumerate(drafted):
        more = min(left, most - number)
        drafted[at], left = number + more, left - more
    return drafted


def _check_size(steps: int, longest: int) -> None:
    if steps > MAX_STEPS:
        raise Refused(f"{steps:,} steps of one request are claimed; at most {MAX_STEPS:,} are believed")
    if longest > MAX_DRAFTED:
        raise Refused(
            f"{longest:,} draft tokens of one step are claimed; at most {MAX_DRAFTED:,} are believed"
        )


def steps_of(rounds: Rounds, position: int) -> Iterator[dict[str, Any]]:
    """The fields of each step.

    Args:
        rounds: their counts.
        position: committed length before the first.
    """
    for accepted, drafted in zip(rounds.accepted, rounds.drafted):
        fields: dict[str, Any] = {
            "position": position,
            "proposal_ids": [None] * drafted,
            "num_accepted": accepted,
            "emitted_ids": [None] * (accepted + 1),
        }
        if not drafted:
            fields["final_kind"] = "none"
        elif accepted == drafted and rounds.has_lengths:
            fields["final_kind"] = "bonus"
        yield fields
        position += accepted + 1


def summed_step(drafted: int, accepted: int, emitted: int, position: int) -> dict[str, Any]:
    """The one step that stands for a request of which only sums are known; no rate per step is made of it.

    Raises:
        Refused: the sums do not fit each other.
    """
    if accepted > drafted:
        raise Refused(f"{accepted:,} tokens are accepted of {drafted:,} drafted")
    if max(drafted, emitted) > MAX_SUMMED:
        raise Refused(f"{max(drafted, emitted):,} tokens of one request; at most {MAX_SUMMED:,} are believed")
    return {
        "position": position,
        "proposal_ids": [None] * drafted,
        "num_accepted": accepted,
        "emitted_ids": [None] * emitted,
        "flags": ["summed"],
    }


def cost_of(fields: Mapping[str, Any]) -> int:
    """What a step costs whoever writes it, in tokens."""
    return STEP_COST + len(fields["proposal_ids"]) + len(fields["emitted_ids"])


def notes_of(rounds: Rounds, *, has_prompt: bool, completed: int | None = None) -> dict[str, str]:
    """What of these steps is not known, by field.

    Args:
        rounds: their counts.
        has_prompt: the prompt's length is known.
        completed: tokens of the answer, where they are known.
    """
    notes: dict[str, str] = {}
    if not rounds.is_ordered:
        notes |= {"step": UNORDERED, "position": UNORDERED}
    elif not has_prompt:
        notes["position"] = FROM_ZERO
    elif completed is not None and 1 + len(rounds.accepted) + sum(rounds.accepted) < completed:
        notes["position"] = TOO_LOW
    if not rounds.has_lengths:
        notes["proposal_ids"] = f"{NO_IDS}; {LENGTHS_LAID}"
    return notes
