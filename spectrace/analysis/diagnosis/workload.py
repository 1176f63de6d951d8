"""Is it the text, not the engine: too little of it, degenerate, or of kinds that differ?

Named only where no structural rule found a fault, since every structural fault looks different on different
text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.metrics import CountTally
from spectrace.analysis.diagnosis.sample import MIN_PROMPTS, MIN_STEPS
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.intervals import Mean, Share
from spectrace.format.columns import Array
from spectrace.format.figures import count_of
from spectrace.format.records import Run

_WINDOW = 1024
"""Committed tokens over which words are counted: any long text repeats its words."""
_MIN_TOKENS = 200
_FEW_WORDS = 0.05
_GRAM, _FEW_GRAMS = 4, 0.25
"""Runs of so many tokens, and the share of different ones below which a stretch goes round in circles."""
_MIN_VOCABULARY = 256
"""With fewer ids than this, repetition says nothing."""
_MAX_SEGMENTS = 32
_MIN_SEGMENT_STEPS = 30
_VISIBLE = 1.25
"""Ratio of accept lengths below which a difference between segments is not worth a word."""
_LOOKED_AT = 200_000
"""Steps whose words are counted."""


@dataclass(slots=True)
class Segment:
    """Acceptance of the steps of one segment."""

    steps: int = 0
    accepted: int = 0
    squares: int = 0
    first: int = 0

    @property
    def mean(self) -> Mean:
        """Tokens per step, the target's own included."""
        return Mean(self.steps, self.accepted + self.steps, self.squares + 2 * self.accepted + self.steps)


class TextTally:
    """Acceptance by segment, and how many different tokens a stretch of text has."""

    FIELDS = (
        "request",
        "position",
        "segment",
        "emitted_ids",
        "proposal_ids",
        "num_accepted",
        "flags",
        "parents",
    )

    def __init__(self, run: Run) -> None:
        self.segments: dict[str, Segment] = {}
        self.windows = self.poor_windows = 0
        self.poor_tokens = self.window_tokens = 0
        self._seen = 0

    def add(self, block: Block) -> None:
        """Counts a block."""
        self._segments(block)
        if self._seen < _LOOKED_AT:
            self._words(block)
        self._seen += block.num_rows

    def _segments(self, block: Block) -> None:
        found = block.words("segment")
        if found is None:
            return
        codes, words = found
        for code in np.unique(codes[(codes >= 0) & block.is_real]).tolist():
            rows = (codes == code) & block.is_real
            name = words[code]
            if name not in self.segments and len(self.segments) >= _MAX_SEGMENTS:
                name = "other"
            segment = self.segments.setdefault(name, Segment())
            own = block.accepted[rows]
            segment.steps += len(own)
            segment.accepted += int(own.sum())
            segment.squares += int((own * own).sum())
            segment.first += int((own > 0).sum())

    def _words(self, block: Block) -> None:
        column = block.columns.get("emitted_ids")
        if column is None or not len(column.values) or column.known is not None:
            return
        row_of = np.repeat(np.arange(block.num_rows), block.emitted)
        window = block.requests * (1 << 20) + np.clip(block.positions // _WINDOW, 0, (1 << 20) - 1)
        order = np.lexsort((column.values, window[row_of]))
        key, ids = window[row_of][order], column.values[order]
        starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        is_new = np.concatenate([[True], (key[1:] != key[:-1]) | (ids[1:] != ids[:-1])])
        sizes = np.diff(np.append(starts, len(key)))
        words = np.add.reduceat(is_new.astype(np.int64), starts)
        judged = sizes >= _MIN_TOKENS
        poor = judged & (words < _FEW_WORDS * sizes)
        poor |= judged & (_different_grams(window[row_of], column.values) < _FEW_GRAMS)
        self.windows += int(judged.sum())
        self.poor_windows += int(poor.sum())
        self.window_tokens += int(sizes[judged].sum())
        self.poor_tokens += int(sizes[poor].sum())


def _different_grams(window: Array, ids: Array) -> Array:
    """[windows] share of different runs of tokens, for the windows of a block in ascending order."""
    order = np.argsort(window, kind="stable")
    key, ids = window[order], ids[order].astype(np.uint64)
    last = len(key) - _GRAM + 1
    found, at = np.unique(key, return_inverse=True)
    if last < 1:
        return np.ones(len(found))
    gram = np.zeros(last, np.uint64)
    for offset in range(_GRAM):
        gram = gram * np.uint64(0x9E3779B97F4A7C15) + ids[offset : offset + last]
    inside = key[:last] == key[_GRAM - 1 :]
    owner, gram = at[:last][inside], gram[inside]
    pairs = np.unique(np.stack((owner.astype(np.uint64), gram)), axis=1)
    counts = np.bincount(owner, minlength=len(found))
    different = np.bincount(pairs[0].astype(np.int64), minlength=len(found))
    share: Array = np.divide(different, counts, out=np.ones(len(found)), where=counts > 0)
    return share


def judge_size(facts: Facts) -> Iterator[Outcome]:
    """Whether there is enough to judge by."""
    steps, prompts = facts.sample.proposals, facts.num_prompts
    if steps >= MIN_STEPS and prompts >= MIN_PROMPTS:
        yield Cleared(
            id="workload/too-small",
            summary="steps and prompts enough",
            evidence={"proposals": steps, "prompts": prompts},
        )
        return
    counted = facts.of(CountTally).counts.proposals
    of = "" if steps == counted else f"the models decided about {steps:,} of "
    yield Finding(
        id="workload/too-small",
        strength=Strength.HINT,
        summary=f"{of}{count_of(counted, 'proposal')} of {count_of(prompts, 'prompt')}; "
        f"statistics need {MIN_STEPS} of {MIN_PROMPTS}.",
        advice=f"Record at least {MIN_STEPS} proposals from {MIN_PROMPTS} different prompts; "
        "repeats of one prompt add nothing.",
        evidence={"proposals": steps, "prompts": prompts, "alpha1": facts.sample.alpha1},
    )


def judge(facts: Facts) -> Iterator[Outcome]:
    """Template, segments, degenerate text."""
    yield from _template(facts)
    yield from _by_segment(facts)
    yield from _degenerate(facts)


def _template(facts: Facts) -> Iterator[Outcome]:
    used, trained = facts.run.template_digest, (facts.run.training or {}).get("template_digest")
    if not used or not trained:
        yield facts.not_recorded(
            "workload/template",
            "record the digests of the chat template and of the one the draft was trained with",
            "template_digest",
            "training.template_digest",
        )
    elif used != trained:
        yield Finding(
            id="workload/template",
            strength=Strength.STRONG,
            summary="The chat template is not the one the draft was trained with.",
            advice="Serve with the training template, thinking mode included, and measure again.",
            evidence={"template_digest": used, "training_template_digest": trained},
        )
    else:
        yield Cleared(id="workload/template", summary="the template is the draft's own")


def _by_segment(facts: Facts) -> Iterator[Outcome]:
    segments = {n: s for n, s in facts.of(TextTally).segments.items() if s.steps >= _MIN_SEGMENT_STEPS}
    if len(segments) < 2:
        if not facts.of(TextTally).segments:
            yield facts.not_recorded(
                "workload/segment", "tag the steps (think, answer, tool) to compare them", "segment"
            )
        return
    ranked = sorted(segments, key=lambda name: -(segments[name].mean.value or 0))
    best, worst = ranked[0], ranked[-1]
    high, low = segments[best].mean, segments[worst].mean
    evidence = {f"accept_length_{name}": segments[name].mean for name in ranked[:6]}
    evidence_all = {**evidence, "accept_length": facts.sample.accept_length}
    differs = not high.overlaps(low) and (high.value or 0) >= _VISIBLE * (low.value or 1)
    if not differs:
        yield Cleared(id="workload/segment", summary="segments are accepted alike", evidence=evidence_all)
        return
    is_strong = facts.sample.is_enough and facts.has_prompts
    yield Finding(
        id="workload/segment",
        strength=Strength.STRONG if is_strong else Strength.HINT,
        summary=f"Acceptance depends on the kind of text: {high.value:.2f} tokens per step in {best}, "
        f"{low.value:.2f} in {worst}.",
        advice="Report the segments apart; train the draft on the one it is weak in.",
        evidence=evidence_all,
    )


def _degenerate(facts: Facts) -> Iterator[Outcome]:
    tally, target = facts.of(TextTally), facts.run.target
    vocab = None if target is None else target.vocab_size
    if vocab is None:
        yield facts.not_recorded(
            "workload/degenerate", "record the target's vocabulary size", "target.vocab_size"
        )
        return
    if not tally.windows or vocab < _MIN_VOCABULARY:
        yield NotChecked(
            id="workload/degenerate",
            reason="texts or vocabulary too small",
            how=f"record texts of {_MIN_TOKENS} tokens and more",
        )
        return
    share = Share(tally.poor_windows, tally.windows)
    evidence = {"stretches_of_few_words": share, "tokens_looked_at": tally.window_tokens}
    if tally.poor_tokens * 2 < tally.window_tokens:
        yield Cleared(id="workload/degenerate", summary="the text does not repeat itself", evidence=evidence)
        return
    is_strong = facts.sample.is_enough and facts.has_prompts
    yield Finding(
        id="workload/degenerate",
        strength=Strength.STRONG if is_strong else Strength.HINT,
        summary="The text repeats itself: its acceptance is not representative.",
        advice="Measure on ordinary prompts; look for a loop in the output.",
        evidence=evidence,
    )
