"""Is the draft's head (or embedding) loaded, its own, and alive?

The loader's list of names settles it; without one, a head that says every token alike or always the same one.
An undertrained draft has ordinary entropy and is not named here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.id_map import Table
from spectrace.analysis.diagnosis.sample import MIN_STEPS, Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.columns import Array
from spectrace.format.records import Run

_HEAD_WORDS = ("lm_head", "embed", "wte", "output.weight", "draft_head", "head.weight")
_UNTRAINED = 0.9
"""Share of ln(Dv) above which a mean entropy is that of a head that knows nothing."""
_KNOWS = 0.25
"""Share of first draft tokens in the target's best twentieth that a random head does not reach."""
_CONSTANT = 0.95
_DEAD = 0.05
"""alpha1 below which no draft is alive."""
MAX_ID = 1 << 20
"""Ids counted one by one; no vocabulary is larger."""


class HeadTally:
    """Entropy of the draft's first distribution, and how often each id comes first."""

    FIELDS = (
        "proposal_ids", "draft_ids", "draft_entropy", "target_ranks", "flags", "num_accepted", "emitted_ids",
        "parents",
    )  # fmt: skip

    def __init__(self, run: Run) -> None:
        self.entropies = 0
        self.entropy_sum = 0.0
        self.ids = IdCounts()
        self.raw = 0
        self.ranked = self.ranked_high = 0
        """First draft tokens whose rank under the target is known, and those in the best twentieth."""
        self._high = 0.0 if run.target is None else (run.target.vocab_size or 0) / 20
        self.steps = Witnesses()

    def add(self, block: Block) -> None:
        """Counts a block."""
        rows = np.flatnonzero(block.is_real)
        entropy = block.tokens("draft_entropy")
        if entropy is not None:
            first = block.starts[rows]
            own = entropy.values[first][entropy.known[first]]
            own = own[np.isfinite(own)]
            self.entropies += len(own)
            self.entropy_sum += float(own.sum())
        ids = block.tokens("draft_ids") or block.tokens("proposal_ids")
        if ids is not None and len(rows):
            first = block.starts[rows]
            self.ids.add(ids.values[first][ids.known[first]])
        ranks = block.tokens("target_ranks")
        if ranks is not None and self._high:
            first = block.starts[rows]
            own = ranks.values[first][ranks.known[first]]
            self.ranked += len(own)
            self.ranked_high += int((own <= self._high).sum())
        self.steps.note(block, block.is_real)


class IdCounts:
    """How often each id occurs, in bounded memory."""

    def __init__(self) -> None:
        self._counts: Array = np.zeros(256, np.int64)

    def add(self, ids: Array) -> None:
        """Counts ids; those out of any vocabulary's range are left out."""
        ids = ids[(ids >= 0) & (ids < MAX_ID)]
        if not len(ids):
            return
        counts = np.bincount(ids)
        if len(counts) > len(self._counts):
            larger = np.zeros(max(len(counts), 2 * len(self._counts)), np.int64)
            larger[: len(self._counts)] = self._counts
            self._counts = larger
        self._counts[: len(counts)] += counts

    @property
    def total(self) -> int:
        """Ids counted."""
        return int(self._counts.sum())

    @property
    def commonest(self) -> tuple[int, int]:
        """The commonest id and how often it occurs; (-1, 0) of none."""
        at = int(self._counts.argmax())
        count = int(self._counts[at])
        return (at, count) if count else (-1, 0)

    def count_of(self, id_: int) -> int:
        """How often an id occurs."""
        return int(self._counts[id_]) if 0 <= id_ < len(self._counts) else 0


def is_head_name(name: str) -> bool:
    """Whether a parameter belongs to a head or an embedding."""
    return any(word in name for word in _HEAD_WORDS)


def judge(facts: Facts) -> Iterator[Outcome]:
    """Loader's list, rows, entropy, constancy."""
    if facts.run.method in ("ngram", "suffix"):
        yield Cleared(id="draft-head", summary="a lookup has no head")
        return
    found = [*_not_loaded(facts), *_overwritten(facts), *_constant(facts), *_untrained(facts)]
    seen: dict[str, Finding] = {}
    for finding in found:
        seen.setdefault(finding.id, finding)
    yield from seen.values()
    if found:
        return
    tally, parameters = facts.of(HeadTally), facts.run.draft and facts.run.draft.parameters
    entropy = tally.entropy_sum / tally.entropies if tally.entropies else None
    size = Table(facts.run).draft_size
    if parameters and parameters.missing is not None:
        yield Cleared(
            id="draft-head/not-loaded", summary="no head or embedding is missing from the checkpoint"
        )
    elif entropy is None or not size:
        yield facts.not_recorded(
            "draft-head/not-loaded",
            "the recorder must pass on the loader's list of missing names, or the draft's entropies",
            "draft.parameters.missing",
            "draft_entropy",
        )
    elif facts.sample.is_enough:
        yield Cleared(
            id="draft-head/not-loaded",
            summary=f"entropy {entropy:.2f} nats of {math.log(size):.2f} at most",
            evidence={"entropy": entropy, "entropy_at_most": math.log(size), "positions": tally.entropies},
        )
    if not tally.ids.total:
        yield from facts.unavailable("draft-head/constant", "proposal_ids")
    elif facts.sample.is_enough:
        _, count = tally.ids.commonest
        share = Share(count, tally.ids.total)
        yield Cleared(
            id="draft-head/constant",
            summary=f"the commonest first draft is {(share.value or 0):.0%} of all",
            evidence={"commonest_first_id": share},
        )


def _not_loaded(facts: Facts) -> Iterator[Finding]:
    parameters = None if facts.run.draft is None else facts.run.draft.parameters
    names = [] if parameters is None else [n for n in parameters.missing or () if is_head_name(n)]
    if names:
        yield Finding(
            id="draft-head/not-loaded",
            strength=Strength.CERTAIN,
            summary=f"The draft's {_listed(names)} was never loaded: it holds random numbers.",
            advice="Load it from the checkpoint under the name it has there, or share the target's.",
            evidence={"missing": names, **_chance(facts)},
            steps=facts.of(HeadTally).steps.steps,
        )


def _chance(facts: Facts) -> dict[str, object]:
    """Acceptance beside that of pure chance."""
    sample, tally, table = facts.sample, facts.of(HeadTally), Table(facts.run)
    found: dict[str, object] = {"alpha1": sample.alpha1, "accept_length": sample.accept_length}
    if table.vocab_size:
        found["accepted_by_chance"] = sample.proposals / table.vocab_size
    if tally.entropies:
        found["entropy"] = tally.entropy_sum / tally.entropies
    if table.draft_size:
        found["entropy_at_most"] = math.log(table.draft_size)
    return found


def _overwritten(facts: Facts) -> Iterator[Finding]:
    table, draft = Table(facts.run), facts.run.draft
    rows = None if draft is None else draft.head_rows
    size = None if not table.map.d2t else len(table.map.d2t)
    prints = {} if draft is None else draft.fingerprints
    shapes = {n: list(p.shape or ()) for n, p in prints.items() if "lm_head" in n and "target" not in n}
    wrong = [shape[0] for shape in shapes.values() if size and shape and shape[0] == table.vocab_size != size]
    is_targets = rows is not None and rows == table.vocab_size != size
    if size and (is_targets or wrong):
        yield Finding(
            id="draft-head/overwritten",
            strength=Strength.CERTAIN,
            summary=f"The draft's head has the target's {rows or wrong[0]:,} rows, "
            f"not the {size:,} of its own vocabulary: it was overwritten by the target's.",
            advice="Keep the draft's own lm_head when weights are shared with the target.",
            evidence={"head_rows": rows or wrong[0], "draft_vocab_size": size, **_chance(facts)},
        )
        return
    digests = {n: p.digest for n, p in prints.items() if p.digest}
    own = {n: d for n, d in digests.items() if "target" not in n and "lm_head" in n}
    others = {d for n, d in digests.items() if "target" in n and "lm_head" in n}
    if size and table.is_reduced and others & set(own.values()):
        yield Finding(
            id="draft-head/overwritten",
            strength=Strength.CERTAIN,
            summary="The draft's head has the same weights as the target's though its vocabulary differs.",
            advice="Keep the draft's own lm_head when weights are shared with the target.",
            evidence={"digests": digests},
        )


def _untrained(facts: Facts) -> Iterator[Finding]:
    sample, tally, table = facts.sample, facts.of(HeadTally), Table(facts.run)
    size, vocab = table.draft_size, table.vocab_size or table.draft_size
    if not (size and vocab and size > 1 and tally.entropies >= MIN_STEPS):
        return
    mean = tally.entropy_sum / tally.entropies
    by_chance = sample.proposals / vocab
    # A draft with little training is nearly as unsure, but what it says ranks far better than by chance; a
    # reduced vocabulary holds frequent ids, which rank better by themselves.
    if Share(tally.ranked_high, tally.ranked).low > _KNOWS:
        return
    if mean > _UNTRAINED * math.log(size) and sample.accepted_first <= _poisson_top(by_chance):
        yield Finding(
            id="draft-head/not-loaded",
            strength=Strength.STRONG,
            summary="The draft finds every token equally likely and is accepted no more often than chance: "
            "its head is untrained or not loaded.",
            advice="List the parameters that the loader did not find; look for lm_head and embed_tokens.",
            evidence=_chance(facts),
            steps=tally.steps.steps,
        )


def _poisson_top(mean: float) -> float:
    """A count that chance exceeds about once in a thousand times: normal approximation, and one more."""
    return mean + 3.1 * math.sqrt(mean) + 1


def _constant(facts: Facts) -> Iterator[Finding]:
    sample, tally = facts.sample, facts.of(HeadTally)
    id_, count = tally.ids.commonest
    total = tally.ids.total
    if total >= MIN_STEPS and count > _CONSTANT * total and sample.alpha1.high < _DEAD:
        yield Finding(
            id="draft-head/constant",
            strength=Strength.STRONG,
            summary=f"The draft says the same id {id_} first in nearly every step: its head was not set.",
            advice="Look at the range of the draft's logits; a head of zeros always picks one id.",
            evidence={"first_id": id_, "same_first_id": Share(count, total), "alpha1": sample.alpha1},
            steps=tally.steps.steps,
        )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"
