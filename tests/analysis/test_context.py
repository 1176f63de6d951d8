"""The text before a step, put together from the prompt and what was committed."""

from __future__ import annotations

from spectrace.analysis.context import tokens_before
from spectrace.testing import make_step


def test_the_prompt_counts_only_where_its_end_is_reached() -> None:
    """Steps that are missing in between are not papered over with the prompt."""
    step = make_step(step=5)
    earlier = [make_step(step=4, emitted_ids=[8, 9])]
    assert tokens_before(step, earlier, [1, 2], 4) == (8, 9)


def test_no_more_steps_are_asked_for_than_needed() -> None:
    """The walk back ends as soon as there is enough text."""
    seen = []

    def earlier() -> object:
        for at in range(9, -1, -1):
            seen.append(at)
            yield make_step(step=at, emitted_ids=[at, at])

    assert tokens_before(make_step(step=10), earlier(), None, 3) == (8, 9, 9)  # type: ignore[arg-type]
    assert seen == [9, 8, 7]


def test_a_first_step_has_its_prompt() -> None:
    """The end of the prompt, at most as much as asked for."""
    assert tokens_before(make_step(step=0), [], [1, 2, 3], 2) == (2, 3)
    assert tokens_before(make_step(step=0), [], None, 2) == ()
