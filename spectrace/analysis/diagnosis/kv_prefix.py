"""Prefix reuse: is a cached block read in the very step in which it is first written?

Two requests with the same prompt beginning may meet in one engine step: the one that found nothing in the
cache writes the blocks, the other one has already found them there. Between layers that is a race, and for a
draft's cache or a recurrent state it is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import PerRequest
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.format.columns import Array
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
    whole = {number: prompt for number in known if (prompt := prompts[number]) is not None}
    guilty = _read_early(used.tolist(), whole, steps, hits)
    if guilty:
        yield Finding(
            id="kv-state/poisoned",
            strength=Strength.CERTAIN,
            summary="Cached blocks are read in the very engine step in which another request first "
            "writes them.",
            advice="Let a block be found in the cache only from the step after the one that writes it.",
            evidence={
                "requests_affected": len(guilty),
                "requests": list(facts.request_names(guilty[:8]).values()),
                "prefix_hit_length": int(hits[guilty].max()),
            },
            steps=sorted(tally.first_row.values[guilty].tolist())[:5],
        )
    else:
        yield Cleared(id=ID, summary="every cached block that is read was written in an earlier step")


def _read_early(
    used: Sequence[int], prompts: Mapping[int, Sequence[int]], steps: Array, hits: Array
) -> list[int]:
    """Requests whose blocks can only come from a request of the same engine step.

    Args:
        used: requests that found blocks.
        prompts: prompt of every request that began.
        steps: [requests] engine step in which each began.
        hits: [requests] tokens whose blocks it found.
    """
    lengths = sorted({int(hits[number]) for number in used})
    alike: dict[tuple[int, bytes], list[int]] = {}
    own: dict[tuple[int, int], bytes] = {}
    for number, prompt in prompts.items():
        for length, digest in _beginnings(prompt, lengths):
            alike.setdefault((length, digest), []).append(number)
            own[number, length] = digest

    def is_early(number: int) -> bool:
        digest = own.get((number, int(hits[number])))
        others = [] if digest is None else alike[int(hits[number]), digest]
        others = [n for n in others if n != number]
        if any(steps[n] < steps[number] for n in others):
            return False
        return any(steps[n] == steps[number] and hits[n] < hits[number] for n in others)

    return [number for number in used if is_early(number)]


def _beginnings(prompt: Sequence[int], lengths: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """A digest of each beginning that the prompt is long enough for; the prompt is read once."""
    digest, at = hashlib.blake2b(digest_size=16), 0
    for length in lengths:
        if length > len(prompt):
            return
        digest.update(",".join(map(str, prompt[at:length])).encode() + b",")
        at = length
        yield length, digest.digest()
