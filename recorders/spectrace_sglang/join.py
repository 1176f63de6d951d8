"""Joins what SGLang does in two places: a proposal's first token is chosen at the end of the round before.

Runs on the writer's thread. What was accepted is counted from the ids, whatever the engine says; what the
scheduler will cut off again (behind the end of a text, beyond a limit) is not committed here either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spectrace.format.items import Group
from spectrace_serving.join import Joiner, grouped
from spectrace_serving.requests import Progress
from spectrace_sglang.events import Event, Seeded, Verified
from spectrace_sglang.steps import Arrived, Row, Seed, TreeRules, fields_of
from spectrace_transformers.reduction import Array


@dataclass(slots=True)
class _Request(Progress):
    """A request between its steps, and what the draft thinks of the first token of the next proposal."""

    seed: Seed | None = None


class TreeJoiner(Joiner[_Request]):
    """Events of the scheduler's thread in, steps out.

    Args:
        rules: what holds for the whole run.
    """

    rules: TreeRules

    def __init__(self, rules: TreeRules) -> None:
        super().__init__(rules, _Request)

    def join(self, event: Event) -> Iterator[Group]:
        """The steps that an event completes."""
        if isinstance(event, Verified):
            yield from self._verified(event)
        elif isinstance(event, Seeded):
            arrays = event.arrays()
            for row, name in enumerate(event.requests):
                request = self.requests.get(name)
                if request is not None:
                    request.seed = Seed(arrays, row)

    def _verified(self, event: Verified) -> Iterator[Group]:
        """Makes steps of a verification."""
        proposed = event.proposed
        drafts = None if proposed is None or proposed.arrays is None else proposed.arrays()
        batch = Arrived(event, event.arrays(), drafts)
        rows = [self._row(batch, at, request) for at, request in self.going_on(event.requests)]
        if event.is_lost:
            return
        for own in grouped(rows, lambda row: (row.seed is None, row.stop is None)):
            yield len(own), fields_of(self.rules, batch, own)

    def _row(self, batch: Arrived, at: int, request: _Request) -> Row | None:
        """One request's part; None where the engine throws the token away."""
        event, arrays = batch.event, batch.arrays
        seed, request.seed = request.seed, None
        if event.prompts is not None:
            position, is_thrown_away = event.prompts[at]
            if is_thrown_away:
                return None
            nodes: list[int] = []
            parents: list[int] = []
            proposal: list[int] = []
            sampled = [int(arrays["sampled"][at])]
        else:
            position = int(arrays["positions"][at, 0]) + 1
            nodes, parents = linked(arrays["parents"][at])
            ids = arrays["ids"][at].tolist()
            proposal = [ids[node] for node in nodes]
            sampled = batch.sampled(at)
        emitted, stop = request.committed(position, sampled, None)  # SGLang shortens max_new_tokens instead
        path = path_of(proposal, parents, emitted)
        row = Row(
            name=request.facts.request,
            number=request.num_steps,
            at=at,
            position=position,
            nodes=nodes,
            parents=parents,
            path=path,
            proposal=proposal,
            num_accepted=len(path),
            emitted=emitted,
            num_reported=len(sampled) - 1,
            is_greedy=request.facts.is_greedy,
            is_prefill=event.prompts is not None,
            prefix_hit_length=request.facts.prefix_hit_length,
            stop=stop,
            seed=seed if nodes else None,
        )
        request.advance(emitted, stop)
        return row


def linked(parents: Array) -> tuple[list[int], list[int]]:
    """The nodes that hang on the root, and the place of each one's parent among them, -1 for the root.

    >>> import numpy as np
    >>> linked(np.array([-2, 0, 0, 1, -2]))
    ([1, 2, 3], [-1, -1, 0])
    """
    place = {0: -1}
    nodes: list[int] = []
    above: list[int] = parents.tolist()
    for node, parent in enumerate(above):
        if node and parent in place:
            place[node] = len(nodes)
            nodes.append(node)
    return nodes, [place[above[node]] for node in nodes]


def path_of(proposal: Sequence[int], parents: Sequence[int], emitted: Sequence[int]) -> list[int]:
    """Places of the nodes that were accepted: from the root down, as long as a child is what was committed.

    >>> path_of([5, 6, 7], [-1, -1, 1], [6, 7, 9])
    [1, 2]
    """
    children: Mapping[tuple[int, int], int] = {
        (parent, token): node for node, (parent, token) in reversed([*enumerate(zip(parents, proposal))])
    }
    path: list[int] = []
    for token in emitted:
        node = children.get((path[-1] if path else -1, token))
        if node is None:
            break
        path.append(node)
    return path
