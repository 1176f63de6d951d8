"""Do draft and target mean the same text by the same id?"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.draft_head import HeadTally
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.id_map import Table
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.format.records import Run

_SPACES = str.maketrans({"\u0120": " ", "\u2581": " "})
"""Marks by which vocabularies write a space."""
_SHOWN = 10
_DEAD, _ORDINARY = 0.05, 0.8
"""alpha1 below which nothing is accepted, and share of the largest entropy below which a draft is sure."""


class IdTally:
    """Ids of the target that do not exist."""

    FIELDS = ("emitted_ids", "target_ids")

    def __init__(self, run: Run) -> None:
        self.vocab_size = None if run.target is None else run.target.vocab_size
        self.outside = 0
        self.steps = Witnesses()

    def add(self, block: Block) -> None:
        """Counts a block."""
        if self.vocab_size is None:
            return
        for path in self.FIELDS:
            column = block.columns.get(path)
            if column is None or not len(column.values):
                continue
            wrong = (column.values < 0) | (column.values >= self.vocab_size)
            if not wrong.any():
                continue
            owner = np.repeat(np.arange(block.num_rows), block.lengths(path))
            if column.known is not None:
                owner = owner[column.known]
            rows = np.zeros(block.num_rows, bool)
            rows[owner[wrong]] = True
            self.outside += int(wrong.sum())
            self.steps.note(block, rows)


def judge(facts: Facts) -> Iterator[Outcome]:
    """Ids out of range, texts that differ, a prompt that begins twice."""
    found = [*_out_of_range(facts), *_texts(facts), *_double_start(facts)]
    if found:
        yield found[0]
    elif facts.of(IdTally).vocab_size is None:
        yield facts.not_recorded(
            "tokenizer", "record the target's vocabulary size and token texts", "target.vocab_size"
        )
    else:
        yield from _unlike(facts)
        compared = len(_pairs(facts))
        words = f"; {compared:,} texts agree" if compared else "; texts were not compared"
        yield Cleared(
            id="tokenizer", summary=f"every id exists{words}", evidence={"texts_compared": compared}
        )


def _unlike(facts: Facts) -> Iterator[Finding]:
    """Signature only: a draft model that knows what to say and never says what the target would.

    That texts agree tells nothing where a recorder wrote both from one tokenizer.
    """
    tally, sample = facts.of(HeadTally), facts.sample
    size = Table(facts.run).draft_size or facts.of(IdTally).vocab_size
    is_sure = bool(size and size > 1 and tally.entropies) and (
        tally.entropy_sum / tally.entropies < _ORDINARY * math.log(size or 2)
    )
    is_dead = sample.is_enough and facts.has_prompts and sample.alpha1.high < _DEAD
    if facts.run.method == "draft_model" and is_dead and is_sure:
        yield Finding(
            id="tokenizer/mismatch",
            strength=Strength.HINT,
            summary="The draft model is sure of what it says and next to nothing is accepted: "
            "its ids may mean other words than the target's.",
            advice="Compare the two tokenizers; give the recorder the draft's own.",
            evidence={"alpha1": sample.alpha1, "entropy": tally.entropy_sum / tally.entropies},
        )


def _mismatch(summary: str, advice: str, evidence: dict[str, object], steps: list[int]) -> Finding:
    return Finding(
        id="tokenizer/mismatch",
        strength=Strength.CERTAIN,
        summary=summary,
        advice=advice,
        evidence=evidence,
        steps=steps,
    )


def _out_of_range(facts: Facts) -> Iterator[Finding]:
    tally = facts.of(IdTally)
    if tally.steps:
        yield _mismatch(
            f"Target ids outside its vocabulary of {tally.vocab_size:,} were picked or committed.",
            "Compare the vocabulary sizes of tokenizer, config and head.",
            {"ids_outside": tally.outside, "vocab_size": tally.vocab_size},
            tally.steps.steps,
        )


def _pairs(facts: Facts) -> list[tuple[int, str, str]]:
    """Draft id, its text, the text of the target id it is mapped to; where both texts say something."""
    table = Table(facts.run)
    ids = None if table.offset is None else table.offset.ids
    if ids is None and (table.map.source == "tokenizers" or table.is_reduced):
        return []
    if ids is not None and table.offset is not None and not table.offset.is_sound:
        return []
    found = []
    for id_, text in facts.token_texts.get("draft", {}).items():
        mapped = id_ if ids is None else int(ids[id_]) if 0 <= id_ < len(ids) else -1
        other = facts.token_texts.get("target", {}).get(mapped)
        if other and text and "\ufffd" not in text + other:
            found.append((id_, text.translate(_SPACES), other.translate(_SPACES)))
    return found


def _texts(facts: Facts) -> Iterator[Finding]:
    pairs = _pairs(facts)
    wrong = [(id_, mine, other) for id_, mine, other in pairs if mine != other]
    if wrong:
        yield _mismatch(
            "Draft and target write different texts for the same id.",
            "Use a draft with the target's tokenizer, or a recorder and engine that translate between the "
            "two.",
            {
                "texts_differing": len(wrong),
                "texts_compared": len(pairs),
                "first": [f"{id_}: {mine!r} / {other!r}" for id_, mine, other in wrong[:_SHOWN]],
            },
            [],
        )


def _double_start(facts: Facts) -> Iterator[Finding]:
    bos = None if facts.run.tokenizer is None else facts.run.tokenizer.bos_id
    twice = [ids for ids in facts.prompts if bos is not None and len(ids) > 1 and ids[0] == ids[1] == bos]
    if twice:
        yield _mismatch(
            "Prompts begin with the start token twice.",
            "The chat template adds it and the tokenizer adds it again: switch one of them off.",
            {"prompts_affected": len(twice), "prompts_looked_at": len(facts.prompts), "bos_id": bos},
            [],
        )
