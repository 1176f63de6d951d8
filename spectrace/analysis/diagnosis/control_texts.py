"""Where the texts of a run and of its control part. Bounded: the first requests, the first tokens of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from spectrace.analysis.block import blocks
from spectrace.analysis.numbering import numbered_files
from spectrace.analysis.rejection import accepted_path, item
from spectrace.format.records import Step

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

MAX_REQUESTS = 64
MAX_TOKENS = 65_536


@dataclass(slots=True)
class Text:
    """What was committed for a request, and by which steps."""

    tokens: list[int] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    """(number of the step within the trace, index of its first token)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The first token in which two texts differ."""

    request: str
    token: int
    """Index within the generated text, from 0."""
    steps: tuple[int, int]
    """Numbers of the steps that committed it."""
    ids: tuple[int, int]
    gap: float | None
    """First less second choice of the target there, in logits, in the first trace that recorded it."""
    rank_of_other: int | None
    """Rank of the other trace's token, 1 = first."""


def committed_texts(trace: Trace) -> dict[str, Text]:
    """Committed tokens of the first requests by name."""
    found: dict[int, Text] = {}
    for block in blocks(trace, {"request": None, "emitted_ids": None}):
        column = block.columns.get("emitted_ids")
        if column is None or column.known is not None:
            continue
        ends = np.cumsum(block.emitted)
        for request in np.unique(block.requests).tolist():
            if request not in found and len(found) >= MAX_REQUESTS:
                continue
            text = found.setdefault(request, Text())
            for row in np.flatnonzero(block.requests == request).tolist():
                if len(text.tokens) >= MAX_TOKENS:
                    break
                text.steps.append((block.first_row + row, len(text.tokens)))
                text.tokens += column.values[ends[row] - block.emitted[row] : ends[row]].tolist()
    names = first_names(trace)
    return {names[number]: text for number, text in found.items() if number in names}


def first_names(trace: Trace) -> dict[int, str]:
    """Name of each of the first requests of every file by its number within the whole trace."""
    return {
        number: name
        for own in numbered_files(trace)
        for number, name in own.names(own.numbers[:MAX_REQUESTS]).items()
    }


def same_prompts(one: Trace, other: Trace) -> list[tuple[str, str]]:
    """Requests of the two traces that have the same prompt: by digest or ids, else by name."""

    def keys(trace: Trace) -> Iterator[tuple[object, str]]:
        requests = trace.requests
        for at in range(min(len(requests), MAX_REQUESTS)):
            request = requests[at]
            yield request.prompt_digest or request.prompt_ids or request.request, request.request

    theirs: dict[object, str] = {}
    for key, name in keys(other):
        theirs.setdefault(key, name)
    return [(name, theirs[key]) for key, name in keys(one) if key in theirs]


def forks(one: Trace, other: Trace) -> Iterator[Fork]:
    """The first difference of each pair of texts that differ; a text that only ends earlier does not."""
    mine, theirs = committed_texts(one), committed_texts(other)
    for name, other_name in same_prompts(one, other):
        a, b = mine.get(name), theirs.get(other_name)
        if a is None or b is None:
            continue
        shared = min(len(a.tokens), len(b.tokens))
        at = next((i for i in range(shared) if a.tokens[i] != b.tokens[i]), None)
        if at is not None:
            yield _fork(one, other, name, at, a, b)


def _fork(one: Trace, other: Trace, name: str, at: int, a: Text, b: Text) -> Fork:
    (step_a, offset_a), (step_b, offset_b) = _step_of(a, at), _step_of(b, at)
    gap, rank = evidence(one.steps.get(step_a), at - offset_a, b.tokens[at])
    if gap is None or rank is None:
        other_gap, other_rank = evidence(other.steps.get(step_b), at - offset_b, a.tokens[at])
        gap, rank = (other_gap, other_rank) if other_gap is not None else (gap, rank)
    return Fork(
        request=name,
        token=at,
        steps=(step_a, step_b),
        ids=(a.tokens[at], b.tokens[at]),
        gap=gap,
        rank_of_other=rank,
    )


def _step_of(text: Text, token: int) -> tuple[int, int]:
    """The step that committed a token, and the index of that step's first token."""
    return max((step for step in text.steps if step[1] <= token), key=lambda step: (step[1], step[0]))


def evidence(step: Step | None, index: int, other_id: int) -> tuple[float | None, int | None]:
    """Gap at a place of a step, and the rank of another token there.

    Args:
        step: the step that committed a token there.
        index: the token's index among those that the step committed.
        other_id: what the other trace committed in its place.
    """
    place = None if step is None else place_of(step, index)
    if step is None or place is None:
        return None, None
    gap = item(step.target_gaps, place)
    top = item(step.target_top, place)
    if gap is None and top is not None and len(top) > 1:
        gap = top[0][1] - top[1][1]
    # Equal logits share a rank: of three that are the same, any may be picked.
    own = next((value for id_, value in top or () if id_ == other_id), None)
    rank = None if own is None else 1 + sum(value > own for _, value in top or ())
    return (gap if gap is not None and math.isfinite(gap) else None), rank


def place_of(step: Step, index: int) -> int | None:
    """Index into a step's target values of the place where a committed token was picked.

    None behind the accepted tokens and the one that follows them: nothing was picked there.

    >>> from spectrace.testing import make_step
    >>> step = make_step(proposal_ids=[5, 6], parents=[-1, -1], num_accepted=1, accepted_nodes=[1])
    >>> [place_of(step, index) for index in range(3)]
    [0, 2, None]
    """
    if index == 0:
        return 0
    node = item(accepted_path(step), index - 1)
    return None if node is None else node + 1
