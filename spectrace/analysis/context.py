"""Which tokens stood before a step. Takes steps, reads no trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spectrace.format.records import Step


def tokens_before(
    step: Step, earlier: Iterable[Step], prompt_ids: Sequence[int] | None, size: int
) -> tuple[int | None, ...]:
    """The last tokens of a request before one of its steps.

    Args:
        step: the step.
        earlier: the request's steps before it, the newest first; as many as are at hand.
        prompt_ids: the request's prompt, None where it was not recorded.
        size: at most so many tokens.

    Returns:
        Target ids in reading order; fewer than `size` where no more are known.

    >>> from spectrace.testing import make_step
    >>> one, two = make_step(step=0, emitted_ids=[7, 8]), make_step(step=1, emitted_ids=[9])
    >>> tokens_before(two, [one], [1, 2, 3], 4)
    (2, 3, 7, 8)
    """
    found: list[int | None] = []
    first = step
    for before in earlier:
        if first.step == 0 or len(found) >= size:
            break
        found[:0] = before.emitted_ids or ()
        first = before
    if first.step == 0:
        found[:0] = list(prompt_ids or ())[-size:]
    return tuple(found[-size:]) if size > 0 else ()
