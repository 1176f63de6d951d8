"""Are the caches of target and draft rolled back to what was committed?

A lag between committed length and cache that stays the same is a convention; one that grows with every
rejection is a fault. Acceptance may look normal all the while.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import MIN_STEPS, PerRequest, Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.diagnosis.witness import AT_FIRST, USUALLY
from spectrace.analysis.intervals import Share
from spectrace.format.columns import Array
from spectrace.format.figures import count_of
from spectrace.format.records import Run

_CONVENTIONS = (0, -1)
"""Target cache less committed length: the last committed token is in it already, or not yet."""
_UNSEEN = np.iinfo(np.int64).min
_DEAD_STEPS = 50
_ALIVE = 0.3
_CHANCE = 0.05
"""alpha1 of garbage: now and then it meets a frequent word."""
_LAGS_SHOWN = 16


class StateTally:
    """Lags of both caches over the steps of each request."""

    FIELDS = (
        "request", "position", "draft_kv_length", "target_kv_length", "prefix_hit_length",
        "proposal_ids", "num_accepted", "flags", "emitted_ids", "parents",
    )  # fmt: skip

    def __init__(self, run: Run) -> None:
        self.draft_steps = 0
        self.first_lag = PerRequest(fill=_UNSEEN)
        self.last_lag = PerRequest(fill=_UNSEEN)
        self.series: dict[int, list[tuple[int, int]]] = {}
        """First steps (number, lag) of the first requests."""
        self.longest = 0
        """Most tokens that the draft's cache held at the start of a step."""
        self.at_longest = self.behind = 0
        """Steps with so many, and steps with fewer in which the draft fell behind where its request began."""
        self.offsets: dict[int, int] = {}
        """Target cache less committed length -> steps."""
        self.offset_steps: dict[int, Witnesses] = {}
        self.hits = PerRequest()
        """Prefix hit length of each request."""

    def add(self, block: Block) -> None:
        """Counts a block."""
        real = ~block.flagged("dummy", "replay", "simulated")
        draft = block.scalar("draft_kv_length")
        if draft is not None:
            self._lags(block, np.flatnonzero(draft.known & real), draft.values)
        target = block.scalar("target_kv_length")
        if target is not None:
            self._offsets(block, target.known & real & ~block.is_prefill, target.values)
        hit = block.scalar("prefix_hit_length")
        if hit is not None:
            self.hits.add(block, np.where(hit.known, np.maximum(hit.values, 0), 0))

    def _lags(self, block: Block, rows: Array, lengths: Array) -> None:
        if not len(rows):
            return
        self.draft_steps += len(rows)
        lags = block.positions[rows] - lengths[rows]
        requests = block.requests[rows]
        size = int(requests.max()) + 1
        first, last = self.first_lag.upto(size), self.last_lag.upto(size)
        found, at = np.unique(requests, return_index=True)
        new = first[found] == _UNSEEN
        first[found[new]] = lags[at[new]]
        self._full(lengths[rows], lags > first[requests] + 1)
        last[requests] = lags  # of several steps of a request, numpy keeps the last
        for request in found[:64].tolist():
            if len(self.series) < 256 or request in self.series:
                series = self.series.setdefault(request, [])
                if len(series) < _LAGS_SHOWN:
                    own = np.flatnonzero(requests == request)[: _LAGS_SHOWN - len(series)]
                    series += zip(block.numbers(rows[own]).tolist(), lags[own].tolist())

    def _full(self, lengths: Array, behind: Array) -> None:
        """Counts steps at the longest cache; a longer one makes those before it fall short."""
        longest = int(lengths.max())
        if longest > self.longest:
            self.behind += self.at_longest
            self.longest, self.at_longest = longest, 0
        at_longest = lengths == self.longest
        self.at_longest += int((at_longest & behind).sum())
        self.behind += int((~at_longest & behind).sum())

    @property
    def window(self) -> int | None:
        """The size that the draft's cache never exceeds though the text goes on; None where it grows."""
        is_full = self.at_longest >= MIN_STEPS / 2 and self.behind <= 0.01 * self.at_longest
        return self.longest if is_full else None

    def _offsets(self, block: Block, usable: Array, lengths: Array) -> None:
        offsets = np.clip(lengths - block.positions, -1000, 1000)
        found, counts = np.unique(offsets[usable], return_counts=True)
        for offset, count in zip(found.tolist(), counts.tolist()):
            self.offsets[offset] = self.offsets.get(offset, 0) + count
            witnesses = self.offset_steps.setdefault(offset, Witnesses())
            if len(witnesses.steps) < Witnesses.LIMIT:
                witnesses.note(block, usable & (offsets == offset))


def judge(facts: Facts) -> Iterator[Outcome]:
    """Target's cache, then the draft's, then requests whose state is poisoned."""
    tally = facts.of(StateTally)
    yield from _target(facts, tally)
    yield from _draft(facts, tally)
    yield from _poisoned(facts, tally)


def _target(facts: Facts, tally: StateTally) -> Iterator[Outcome]:
    if not tally.offsets:
        yield facts.not_recorded(
            "kv-state/target-length", "record the target's cache length in each step", "target_kv_length"
        )
        return
    usual = max(_CONVENTIONS, key=lambda offset: tally.offsets.get(offset, 0))
    wrong = {offset: count for offset, count in tally.offsets.items() if offset != usual}
    total = sum(tally.offsets.values())
    if not wrong:
        words = "the committed length" if usual == 0 else "one token less"
        yield Cleared(
            id="kv-state/target-length",
            summary=f"the target's cache holds {words} in {count_of(total, 'step')}",
        )
        return
    steps = sorted(step for offset in wrong for step in tally.offset_steps[offset].steps)
    yield Finding(
        id="kv-state/target-length",
        strength=Strength.CERTAIN,
        summary="The target's cache does not hold what was committed when a step begins.",
        advice="Crop the target's cache to the committed length after each verification.",
        evidence={
            "steps_off": Share(sum(wrong.values()), total),
            "cache_less_committed": dict(sorted(wrong.items(), key=lambda item: -item[1])[:8]),
            USUALLY: usual,
        },
        steps=steps[: Witnesses.LIMIT],
    )


def _draft(facts: Facts, tally: StateTally) -> Iterator[Outcome]:
    if not tally.draft_steps and facts.run.method in ("ngram", "suffix"):
        yield Cleared(id="kv-state/over-trimmed", summary="a lookup has no cache")
        return
    if not tally.draft_steps:
        yield facts.not_recorded(
            "kv-state/over-trimmed", "record the draft's cache length in each step", "draft_kv_length"
        )
        return
    if tally.window is not None:
        yield NotChecked(
            id="kv-state/over-trimmed",
            reason=f"the draft's cache keeps the last {tally.window:,} tokens only: see window/length",
        )
        return
    first, last = tally.first_lag.values, tally.last_lag.values
    seen = first != _UNSEEN
    growth = np.where(seen, last - np.where(seen, first, 0), 0)
    # One step after a full acceptance the last accepted token may still be missing.
    over, under = growth >= 2, growth <= -2
    for id_, rows, summary, advice in (
        (
            "kv-state/over-trimmed",
            over,
            "The draft's cache falls behind the committed text a little more with each rejection.",
            "After a step of K proposed and A accepted tokens, trim max(K - (A + 1), 0) entries.",
        ),
        (
            "kv-state/not-trimmed",
            under,
            "The draft's cache keeps rejected tokens: it grows ahead of the committed text.",
            "Trim the draft's cache to the committed length after each rejection.",
        ),
    ):
        if rows.any():
            yield _lag_finding(tally, id_, rows, int(seen.sum()), growth, summary, advice)
    if not (over | under).any():
        yield Cleared(
            id="kv-state/over-trimmed",
            summary=f"the draft's cache keeps its distance in {count_of(int(seen.sum()), 'request')}",
            evidence={"largest_change": int(np.abs(growth).max(initial=0)), "steps": tally.draft_steps},
        )


def _lag_finding(
    tally: StateTally, id_: str, rows: Array, requests: int, growth: Array, summary: str, advice: str
) -> Finding:
    """The finding with the lags of the first request that was watched."""
    shown = next((tally.series[r] for r in np.flatnonzero(rows).tolist() if r in tally.series), [])
    lags = [lag for _, lag in shown]
    moved = [step for (step, lag), before in zip(shown[1:], lags) if lag != before]
    return Finding(
        id=id_,
        strength=Strength.CERTAIN,
        summary=summary,
        advice=advice,
        evidence={
            "requests_affected": Share(int(rows.sum()), requests),
            **_lag_words(lags, int(growth[np.abs(growth).argmax()])),
            **({AT_FIRST: -lags[0]} if lags else {}),
        },
        steps=moved[: Witnesses.LIMIT],
    )


def _lag_words(lags: list[int], largest: int) -> dict[str, object]:
    """Lags by what they are rows of: those kept beyond the committed text, or those missing of it."""
    if largest < 0:
        kept = [lags[0] - lag for lag in lags]
        return {"rows_beyond_the_committed_text_at_step_start": kept, "most_rows_beyond": -largest}
    return {"rows_missing_of_the_committed_text_at_step_start": lags, "most_rows_missing": largest}


def _is_dead(proposals: Array, first: Array) -> Array:
    """[requests] nothing accepted; or, where several stand apart from all others, chance hits only."""
    alpha = first / np.maximum(proposals, 1)
    hardly = (proposals >= _DEAD_STEPS) & (alpha <= _CHANCE)
    between = (proposals >= _DEAD_STEPS) & (alpha > _CHANCE) & (alpha < _ALIVE)
    return hardly if hardly.sum() > 1 and not between.any() else (first == 0) & (proposals > 0)


def _poisoned(facts: Facts, tally: StateTally) -> Iterator[Outcome]:
    sample = facts.sample
    proposals, first = sample.request_proposals.values, sample.request_first.values
    dead = (proposals >= _DEAD_STEPS) & _is_dead(proposals, first)
    hits = np.zeros(len(proposals), np.int64)
    hits[: len(tally.hits.values)] = tally.hits.values[: len(hits)]
    others = Share(int(first[~dead].sum()), int(proposals[~dead].sum()))
    if not dead.any() or not facts.has_prompts or others.trials < MIN_STEPS or others.low < _ALIVE:
        return
    yield Finding(
        id="kv-state/poisoned",
        strength=Strength.STRONG,
        summary="Some requests never have a token accepted while all others are normal: "
        "the cached blocks they share look poisoned.",
        advice="Run those prompts again with prefix caching off.",
        evidence={
            "requests_without_acceptance": Share(int(dead.sum()), int((proposals > 0).sum())),
            "their_proposals": int(proposals[dead].sum()),
            "alpha1_of_others": others,
            "prefix_hit_length": int(hits[dead].max(initial=0)),
        },
        steps=sorted(series[0][0] for r in np.flatnonzero(dead).tolist() if (series := tally.series.get(r)))[
            : Witnesses.LIMIT
        ],
    )
