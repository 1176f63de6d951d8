"""Joins what vLLM does in two places: a proposal at the end of one engine step, its verification in the next.

Runs on the writer's thread. What was accepted is counted from the ids, whatever the engine says; what the
scheduler will cut off again (behind the end of a text, beyond a limit) is not committed here either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spectrace.format.items import Group
from spectrace_serving.join import Joiner, grouped
from spectrace_serving.requests import Progress
from spectrace_serving.rows import Taps
from spectrace_transformers.reduction import Array
from spectrace_vllm.events import Event, Proposed, Verified
from spectrace_vllm.steps import Arrived, ChainRules, Draft, Row, fields_of


@dataclass(slots=True)
class _Request(Progress):
    """A request between its steps, and what was proposed for the next."""

    draft: Draft | None = None
    draft_row: int = 0


class ChainJoiner(Joiner[_Request]):
    """Events of the engine's thread in, steps out.

    Args:
        rules: what holds for the whole run.
    """

    rules: ChainRules

    def __init__(self, rules: ChainRules) -> None:
        super().__init__(rules, _Request)
        self._held: tuple[Verified, Mapping[str, Array]] | None = None
        """The last verification: the states of its forward come with the next proposal."""

    def join(self, event: Event) -> Iterator[Group]:
        """The steps that an event completes."""
        if isinstance(event, Proposed):
            yield from self._proposed(event)
            return
        yield from self._release(None, {})
        if isinstance(event, Verified):
            self._held = (event, event.arrays())

    def _proposed(self, event: Proposed) -> Iterator[Group]:
        arrays = event.arrays()
        is_same = self._held is not None and self._held[0].engine_step == event.engine_step
        has_taps = is_same and "tap_projections" in arrays  # none where the reduction failed
        yield from self._release(event.taps if has_taps else None, arrays)
        draft = Draft.of(event, arrays)
        for row, name in enumerate(event.requests):
            request = self.requests.get(name)
            if request is not None:
                request.draft, request.draft_row = draft, row

    def _release(self, taps: Taps | None, tap_arrays: Mapping[str, Array]) -> Iterator[Group]:
        """Makes steps of the verification that is held back."""
        if self._held is None:
            return
        (event, arrays), self._held = self._held, None
        starts = np.cumsum(event.counts) - event.counts  # [B] first row of each request
        rows = [
            self._row(event, arrays, at, int(starts[at]), request)
            for at, request in self.going_on(event.requests)
        ]
        if event.is_lost:
            return
        batch = Arrived(event, arrays, taps, tap_arrays)
        for own in grouped(rows, lambda row: (id(row.draft), row.num_drafted > 0, row.stop is None)):
            yield len(own), fields_of(self.rules, batch, own)

    def _row(
        self, event: Verified, arrays: Mapping[str, Array], at: int, start: int, request: _Request
    ) -> Row | None:
        """One request's part; None where the engine throws the sample away."""
        sampled = self._sampled(event, arrays, at)
        draft, request.draft = request.draft, None
        if not sampled:
            request.draft = draft
            return None
        drafted = int(event.counts[at]) - 1
        proposal = arrays["row_ids"][start + 1 : start + 1 + drafted].tolist()
        position = int(arrays["row_positions"][start]) + 1
        emitted, stop = request.committed(position, sampled, self.rules.max_length)
        if draft is not None and not (drafted and draft.proposes(request.draft_row, proposal)):
            draft = None
        row = Row(
            name=request.facts.request,
            number=request.num_steps,
            at=at,
            start=start,
            position=position,
            proposal=proposal,
            num_accepted=common_prefix(proposal, emitted),
            emitted=emitted,
            num_reported=len(sampled) - 1,
            is_greedy=request.facts.is_greedy,
            is_prefill=request.num_steps == 0 or int(event.num_scheduled[at]) > drafted + 1,
            prefix_hit_length=request.facts.prefix_hit_length,
            stop=stop,
            draft=draft,
            draft_row=request.draft_row,
        )
        request.advance(emitted, stop)
        return row

    def _sampled(self, event: Verified, arrays: Mapping[str, Array], at: int) -> list[int]:
        """What the engine sampled for a request, before the scheduler looks at it."""
        row = arrays["sampled"][at]
        if "num_sampled" in arrays:
            found: list[int] = row[: int(arrays["num_sampled"][at])].tolist()
            return found
        if event.discarded is not None and event.discarded[at]:
            return []
        return [token for token in row.tolist() if token >= 0]


def common_prefix(proposal: Sequence[int], emitted: Sequence[int]) -> int:
    """How many tokens of a proposal were committed.

    >>> common_prefix([5, 6, 7], [5, 6, 9]), common_prefix([5, 6], [5, 6, 9]), common_prefix([5, 6], [5])
    (2, 2, 1)
    """
    pairs = zip(proposal, emitted)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(proposal), len(emitted)))
