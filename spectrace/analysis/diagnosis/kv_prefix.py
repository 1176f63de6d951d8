"""Prefix reuse: is a cached block read in the very step in which it is first written?

Two requests with the same prompt beginning may meet in one engine step: the one that found nothing in the
cache writes the blocks, the other one has already found them there. Between layers that is a race, and for a
draft's cache or a recurrent state it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from spectrace.analysis.diagnosis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import PerRequest
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.format.records import Run

_UNSEEN, _UNKNOWN = -2, -1
_MAX_REQUESTS = 1024
"""Requests whose prompts are compared."""
ID = "kv-state/read-before-written"


class PrefixTally:
    """Engine step and prefix hit of the first step of each request."""

    FIELDS = ("request", "engine_step", "prefix_hit_length")

    def __init__(self, run: Run) -> None:
        self.engine_step = PerRequest(fill=_UNSEEN)
        self.hit = PerRequest(fill=_UNSEEN)
        self.first_row = PerRequest()

    def add(self, block: Block) -> None:
        """Counts a block."""
        found, first = np.unique(block.requests, return_index=True)
        size = int(found.max(initial=-1)) + 1
        step, hit, row = (t.upto(size) for t in (self.engine_step, self.hit, self.first_row))
        new = step[found] == _UNSEEN
        found, first = found[new], first[new]
        for own, path in ((step, "engine_step"), (hit, "prefix_hit_length")):
            values = block.scalar(path)
            own[found] = _UNKNOWN
            if values is not None:
                known = values.known[first] & (values.values[first] >= 0)
                own[found[known]] = values.values[first[known]]
        row[found] = block.numbers(first)


def judge(facts: Facts) -> Iterator[Outcome]:
    """Requests that share a beginning and begin together."""
    tally = facts.of(PrefixTally)
    steps, hits = tally.engine_step.values, tally.hit.values
    used = np.flatnonzero((hits > 0) & (steps >= 0))
    seen = hits[hits != _UNSEEN]
    if not len(used) and (seen == 0).all():
        if len(seen):
            yield Cleared(id=ID, summary="no request reused cached blocks")
        return
    if not len(used):
        how = "record engine_step and prefix_hit_length of each request's first step"
        yield facts.not_recorded(ID, how, "prefix_hit_length", "engine_step")
        return
    prompts = facts.request_prompts(range(min(len(steps), _MAX_REQUESTS)))
    known = [number for number in np.flatnonzero(steps != _UNSEEN).tolist() if number < len(prompts)]
    if len(steps) > len(prompts) or any(prompts[n] is None or steps[n] < 0 or hits[n] < 0 for n in known):
        yield NotChecked(
            id=ID,
            reason="the beginnings of the prompts are not all known",
            how="record prompt_ids, and engine_step and prefix_hit_length of each request's first step",
        )
        return
    guilty = [number for number in used.tolist() if _is_read_early(number, known, prompts, steps, hits)]
    if guilty:
        yield Finding(
            id="kv-state/poisoned",
            strength=Strength.CERTAIN,
            summary="Cached blocks are read in the very engine step in which another request first "
            "writes them.",
            advice="Let a block be found in the cache only from the step after the one that writes it.",
            evidence={
                "requests_affected": len(guilty),
                "requests": facts.request_names(guilty[:8]),
                "prefix_hit_length": int(hits[guilty].max()),
            },
            steps=sorted(tally.first_row.values[guilty].tolist())[:5],
        )
    else:
        yield Cleared(id=ID, summary="every cached block that is read was written in an earlier step")


def _is_read_early(
    number: int, known: Sequence[int], prompts: Sequence[Sequence[int] | None], steps: object, hits: object
) -> bool:
    """Whether the blocks a request found can only come from a request of the same engine step."""
    hit, step = hits[number], steps[number]  # type: ignore[index]
    beginning = list((prompts[number] or ())[:hit])
    alike = [n for n in known if n != number and list((prompts[n] or ())[:hit]) == beginning]
    if len(beginning) < hit or any(steps[n] < step for n in alike):  # type: ignore[index]
        return False
    return any(steps[n] == step and hits[n] < hit for n in alike)  # type: ignore[index]
