"""Does the draft stop working at a length: a gate, a window, a limit it was not trained beyond?

The gate is batch-wide: while one long request is in flight, short ones get placeholder drafts too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.draft_head import IdCounts
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.kv_state import StateTally
from spectrace.analysis.diagnosis.sample import PerRequest, Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.intervals import Mean, Share
from spectrace.format.records import Run

_GATED, _ORDINARY = 0.99, 0.5
_MIN_GATED = 5
_BUCKETS = 32
_MIN_BUCKET = 200
_FALL = 0.75
_CACHE_SLACK = 64


class LengthTally:
    """Proposed ids beyond and below the draft's longest length; acceptance by context length."""

    FIELDS = (
        "request",
        "position",
        "proposal_ids",
        "max_batch_length",
        "num_accepted",
        "flags",
        "emitted_ids",
        "parents",
    )

    def __init__(self, run: Run) -> None:
        self.limit = None if run.draft is None else run.draft.max_length
        self.beyond, self.below = IdCounts(), IdCounts()
        self.beyond_steps = Witnesses()
        self.accepted_beyond = 0
        self.collateral = PerRequest()
        """Per request: gated steps in which its own length was within the limit."""
        self.onset: int | None = None
        """Batch length at the first gated step."""
        self.bucket_steps = np.zeros(_BUCKETS, np.int64)
        self.bucket_accepted = np.zeros(_BUCKETS, np.int64)
        self.bucket_squares = np.zeros(_BUCKETS, np.int64)
        self.fit = np.zeros(5)
        """Sums for a line: n, x, y, x x, x y; x in thousands of tokens."""

    def add(self, block: Block) -> None:
        """Counts a block."""
        real = block.is_real
        if self.limit is not None:
            self._gate(block, self.limit)
        own, accepted = np.maximum(block.positions[real], 0), block.accepted[real]
        # 0..255 tokens are one bucket, then each doubling of the context.
        bucket = np.clip(np.log2(np.maximum(own, 1)).astype(np.int64) - 7, 0, _BUCKETS - 1)
        self.bucket_steps += np.bincount(bucket, minlength=_BUCKETS)
        self.bucket_accepted += np.bincount(bucket, weights=accepted, minlength=_BUCKETS).astype(np.int64)
        self.bucket_squares += np.bincount(bucket, weights=accepted * accepted, minlength=_BUCKETS).astype(
            np.int64
        )
        x, y = own / 1000.0, accepted.astype(np.float64)
        self.fit += [len(x), x.sum(), y.sum(), (x * x).sum(), (x * y).sum()]

    def _gate(self, block: Block, limit: int) -> None:
        ids = block.tokens("proposal_ids")
        if ids is None:
            return
        batch = block.scalar("max_batch_length")
        length = block.positions if batch is None else np.where(batch.known, batch.values, block.positions)
        beyond = block.is_real & (length + block.drafted > limit)
        below = block.is_real & ~beyond
        self.beyond.add(ids.values[beyond[block.token_rows]])
        self.below.add(ids.values[below[block.token_rows]])
        self.accepted_beyond += int(block.accepted[beyond].sum())
        if beyond.any():
            if self.onset is None:
                self.onset = int(length[np.flatnonzero(beyond)[0]])
            self.beyond_steps.note(block, beyond)
            self.collateral.add(block, beyond & (block.positions + block.drafted <= limit))

    @property
    def slope(self) -> float | None:
        """Change of accepted tokens per thousand tokens of context, least squares."""
        n, x, y, xx, xy = self.fit
        spread = n * xx - x * x
        return float((n * xy - x * y) / spread) if n > 2 and spread > 0 else None

    def bucket(self, at: int) -> Mean:
        """Accept length in a bucket."""
        steps, accepted = int(self.bucket_steps[at]), int(self.bucket_accepted[at])
        return Mean(steps, accepted + steps, int(self.bucket_squares[at]) + 2 * accepted + steps)


def judge_gate(facts: Facts) -> Iterator[Outcome]:
    """Placeholder drafts once the batch is longer than the draft allows."""
    tally = facts.of(LengthTally)
    yield from _undeclared(facts)
    if tally.limit is None and facts.run.method in ("ngram", "suffix"):
        yield Cleared(id="window/gated", summary="a lookup has no longest length")
        return
    if tally.limit is None:
        yield facts.not_recorded(
            "window/gated", "record the longest length the draft declares", "draft.max_length"
        )
        return
    id_, count = tally.beyond.commonest
    same = Share(count, tally.beyond.total)
    before = Share(tally.below.count_of(id_), tally.below.total)
    if tally.beyond_steps.count < _MIN_GATED:
        yield Cleared(id="window/gated", summary=f"nothing reached the draft's {tally.limit:,} tokens")
        return
    is_gated = (same.value or 0) > _GATED and before.trials > 0 and (before.value or 0) < _ORDINARY
    if not is_gated or tally.accepted_beyond > 0.01 * tally.beyond.total:
        yield Cleared(
            id="window/gated",
            summary="drafts beyond the draft's limit are ordinary",
            evidence={"same_id": same},
        )
        return
    collateral = tally.collateral.values
    yield Finding(
        id="window/gated",
        strength=Strength.CERTAIN,
        summary=f"From a batch length of {tally.onset:,} on every draft token is id {id_}: the drafter is "
        "gated "
        f"beyond {tally.limit:,} tokens and hands out placeholders, for the whole batch.",
        advice="Raise the draft's length limit, or keep long requests out of batches that speculate.",
        evidence={
            "draft_max_length": tally.limit,
            "onset_batch_length": tally.onset,
            "same_id_beyond": same,
            "same_id_below": before,
            "accepted_beyond": tally.accepted_beyond,
            "short_requests_affected": int((collateral > 0).sum()),
            "requests_affected": list(
                facts.request_names(np.flatnonzero(collateral > 0)[:8].tolist()).values()
            ),
        },
        steps=tally.beyond_steps.steps,
    )


def _undeclared(facts: Facts) -> Iterator[Outcome]:
    """The window of the header, or of the cache's length, against what the checkpoint declares."""
    draft, seen = facts.run.draft, facts.of(StateTally).window
    used = None if draft is None else draft.window
    declared = None if draft is None else draft.window_declared
    window = used or seen
    if not window:
        if used == 0 and not declared:
            yield Cleared(id="window/undeclared", summary="the draft sees all of the text")
        elif used == 0 and declared and facts.of(StateTally).longest > declared:
            yield _window_finding(0, declared, Strength.STRONG)
        return
    # A cache may hold some tokens more or fewer than the window that its layers see.
    if declared and (window == declared if used else abs(window - declared) <= _CACHE_SLACK):
        yield Cleared(
            id="window/undeclared", summary=f"the draft sees {window:,} tokens, as its checkpoint says"
        )
        return
    # Where the checkpoint's own window is not recorded, this may be it.
    yield _window_finding(window, declared, Strength.HINT if declared is None else Strength.CERTAIN)


def _window_finding(window: int, declared: int | None, strength: Strength) -> Finding:
    runs = f"sees the last {window:,} tokens only" if window else "sees all of the text"
    says = {None: "what its checkpoint declares is not recorded", 0: "its checkpoint declares no window"}.get(
        declared, f"its checkpoint declares a window of {declared or 0:,}"
    )
    return Finding(
        id="window/length",
        strength=strength,
        summary=f"The draft {runs}; {says}.",
        advice="Run the draft with the window it was trained with.",
        evidence={"window": window, "window_declared": declared},
    )


def judge_length(facts: Facts) -> Iterator[Outcome]:
    """Acceptance that falls with the context; a hint only, as longer prompts are other tasks."""
    unknown = [*facts.unavailable("window/length", "position")]
    if unknown:
        yield from unknown
        return
    tally = facts.of(LengthTally)
    used = [at for at in range(_BUCKETS) if tally.bucket_steps[at] >= _MIN_BUCKET]
    if len(used) < 2:
        yield NotChecked(
            id="window/length",
            reason="the contexts are of one length",
            how=f"record {_MIN_BUCKET} proposals at each of several context lengths",
        )
        return
    short, long = tally.bucket(used[0]), tally.bucket(used[-1])
    evidence = {
        "accept_length_shortest": short,
        "accept_length_longest": long,
        "longest_bucket_from": 0 if not used[-1] else 2 ** (used[-1] + 7),
        "slope_per_1k_tokens": tally.slope,
    }
    fell = (long.value or 0) <= _FALL * (short.value or 0) and not short.overlaps(long)
    if not fell or not facts.has_prompts or not facts.sample.is_enough:
        yield Cleared(
            id="window/length", summary="acceptance does not fall with the context", evidence=evidence
        )
        return
    yield Finding(
        id="window/length",
        strength=Strength.HINT,
        summary=f"Accept length falls from {short.value:.2f} to {long.value:.2f} as the context grows: "
        "the draft may not extrapolate.",
        advice="Run one prompt truncated to several lengths; other prompts are other tasks.",
        evidence=evidence,
    )
