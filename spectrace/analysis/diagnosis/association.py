"""Do draft ids stand for other target ids than the map says? What the target picks beside each raw id tells.

A good draft under a wrong map says one raw id wherever the target picks one certain id, only not the mapped
one. The relation is learned from every other step and tried on the rest, so that chance gains nothing; a
draft that is merely bad has no such relation, and one that is a token behind has one that many ids share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Finding, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.records import Run

_GAIN = 0.2
"""Least rise of alpha1 by another map: wrong maps cost nearly all of it."""
_LEARNED = 0.5
"""Least alpha1 of the learned ids: a weaker relation is one of words that follow each other."""
_DISTINCT = 0.9
"""Least share of different targets among learned ids; a map is one-to-one."""
_MIN_SEEN, _MIN_TRIED = 2, 50
"""Steps from which an id's partner is taken for learned, and steps with learned ids to try them on."""


class AssociationTally:
    """How often each raw id stood first beside each pick of the target, in alternate steps."""

    FIELDS = (
        "draft_ids", "proposal_ids", "target_ids", "flags", "num_accepted", "emitted_ids", "parents",
    )  # fmt: skip

    FIRST_STEPS = 20_000
    """Enough for every id that is frequent, and bounded."""

    def __init__(self, run: Run) -> None:
        self.pairs: tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]] = (Counter(), Counter())
        """(raw id, pick) -> steps; of even and odd ones."""
        self.hits: Counter[int] = Counter()
        """Raw id -> odd steps whose mapped id is the pick."""
        self.missed = Witnesses()
        self._seen = 0

    def add(self, block: Block) -> None:
        """Counts a block."""
        mapped, picks = block.tokens("proposal_ids"), block.slots("target_ids")
        raw = block.tokens("draft_ids") or mapped
        if raw is None or mapped is None or picks is None:
            return
        rows = np.flatnonzero(block.is_real)
        tokens, slots = block.starts[rows], block.root_slots[rows]
        known = raw.known[tokens] & picks.known[slots]
        rows, tokens, slots = rows[known], tokens[known], slots[known]
        is_odd = (self._seen + np.arange(len(rows))) % 2 == 1
        self._seen += len(rows)
        wanted = picks.values[slots]
        for half, chosen in zip(self.pairs, (~is_odd, is_odd)):
            half.update(zip(raw.values[tokens][chosen].tolist(), wanted[chosen].tolist()))
        hit = mapped.values[tokens] == wanted
        self.hits.update(raw.values[tokens][hit & is_odd].tolist())
        missed = np.zeros(block.num_rows, bool)
        missed[rows[~hit]] = True
        self.missed.note(block, missed)

    @property
    def learned(self) -> dict[int, int]:
        """Raw id -> the pick that stood beside it most often, of ids seen often enough in even steps."""
        seen: Counter[int] = Counter()
        best: dict[int, tuple[int, int]] = {}
        for (raw, pick), count in self.pairs[0].items():
            seen[raw] += count
            best[raw] = max(best.get(raw, (0, 0)), (count, pick))
        return {raw: pick for raw, (_, pick) in best.items() if seen[raw] >= _MIN_SEEN}


def judge(facts: Facts) -> Iterator[Outcome]:
    """Another one-to-one relation would accept far more."""
    tally = facts.of(AssociationTally)
    learned = tally.learned
    tried = {pair: count for pair, count in tally.pairs[1].items() if pair[0] in learned}
    trials = sum(tried.values())
    if not facts.sample.is_enough or trials < _MIN_TRIED:
        return
    recorded = Share(sum(tally.hits[raw] for raw in learned), trials)
    other = Share(sum(count for (raw, pick), count in tried.items() if learned[raw] == pick), trials)
    distinct = len(set(learned.values())) / len(learned)
    is_better = other.low >= recorded.high + _GAIN and (other.value or 0) >= _LEARNED
    if not is_better or distinct < _DISTINCT:
        return
    is_shared = facts.shares_vocabulary
    yield Finding(
        id="tokenizer/mismatch" if is_shared else "vocab-map/stale",
        strength=Strength.STRONG,
        summary="Draft ids stand for other target ids than "
        + (
            "themselves: the two vocabularies differ."
            if is_shared
            else "the map says: it is another draft's."
        ),
        advice="Use a draft with the target's tokenizer, or translate between the two."
        if is_shared
        else "Take d2t and t2d from the draft's own checkpoint; compare digests with the training run's.",
        evidence={
            "alpha1_as_recorded": recorded,
            "alpha1_by_learned_ids": other,
            "ids_learned": len(learned),
            "different_targets": distinct,
        },
        steps=tally.missed.steps,
    )
