"""Tokenizers and vocabularies: do equal ids mean equal text, and what can the draft say at all. Rules K12.

Owns the coverage of a draft vocabulary too: the ceiling it sets on acceptance is no fault, and is shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.draft.facts import DraftFacts
from spectrace.analysis.draft.vocab_map import MapReport
from spectrace.checkpoint.records import Checkpoint, Tokenizer

_WITNESSES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """One tokenizer in numbers."""

    digest: str
    """SHA-256 of the tokens in the order of their ids, each ended by a NUL byte: that of a trace's header."""
    size: int
    """Tokens, added ones included."""
    highest: int
    """Highest id."""
    special_ids: Mapping[str, tuple[int, ...]]
    rows: int | None = None
    """Rows of the model's embeddings."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "digest": self.digest,
            "size": self.size,
            "highest": self.highest,
            "special_ids": {kind: list(ids) for kind, ids in self.special_ids.items()},
            "embedding_rows": self.rows,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What the draft's ids cover."""

    kept: int
    """Target ids that the draft can propose."""
    of: int
    """Ids of the target."""
    missing_special: Mapping[str, tuple[int, ...]]
    """Special ids of the target that the draft cannot propose."""
    counted: int | None = None
    """Occurrences in the given frequencies that it can propose."""
    counted_of: int | None = None
    tokens: int | None = None
    """Tokens of the target's tokenizer that it can propose."""
    tokens_of: int | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "kept": self.kept,
            "of": self.of,
            "missing_special": {kind: list(ids) for kind, ids in self.missing_special.items()},
            "counted": self.counted,
            "counted_of": self.counted_of,
            "tokens": self.tokens,
            "tokens_of": self.tokens_of,
        }


def tokenizer_facts(model: Checkpoint | None) -> TokenizerFacts | None:
    """Numbers of a model's tokenizer; None where there is none."""
    tokenizer = None if model is None else model.tokenizer
    if model is None or tokenizer is None or not tokenizer.texts:
        return None
    texts = tokenizer.texts
    joined = "".join(f"{texts.get(token_id)}\0" for token_id in range(len(texts)))
    digest = hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()
    return TokenizerFacts(
        digest=f"sha256:{digest}",
        size=len(texts),
        highest=max(texts),
        special_ids=tokenizer.special_ids,
        rows=embedding_rows(model),
    )


def embedding_rows(model: Checkpoint) -> int | None:
    """Rows of a model's table of embeddings."""
    tables = (tensor for name, tensor in model.tensors.items() if name.endswith("embed_tokens.weight"))
    return next((table.rows for table in tables if len(table.shape) == 2), None)


def coverage(
    report: MapReport | None,
    facts: DraftFacts,
    tokenizer: Tokenizer | None,
    frequencies: Mapping[int, int] | None,
) -> Coverage | None:
    """What the draft can propose; None where the map is unknown.

    Args:
        report: the map, read as offsets.
        facts: sizes.
        tokenizer: the target's.
        frequencies: target id -> occurrences, of some text.
    """
    total = facts.target_vocab
    if total is None or (report is not None and report.meaning not in ("offset", "identity")):
        return None
    if report is None and facts.draft_vocab != total:
        return None
    kept = None if report is None else frozenset(report.offset.ids.tolist())

    def says(token_id: int) -> bool:
        return kept is None or token_id in kept

    special_ids = {} if tokenizer is None else tokenizer.special_ids
    lost = {kind: tuple(i for i in given if not says(i)) for kind, given in special_ids.items()}
    given = frequencies or {}
    texts = {} if tokenizer is None else tokenizer.texts
    return Coverage(
        kept=total if kept is None else len(kept),
        of=total,
        missing_special={kind: ids for kind, ids in lost.items() if ids},
        counted=None if frequencies is None else sum(n for i, n in given.items() if says(i)),
        counted_of=None if frequencies is None else sum(given.values()),
        tokens=sum(map(says, texts)) if texts else None,
        tokens_of=len(texts) or None,
    )


def judge_tokens(draft: Checkpoint, target: Checkpoint | None, facts: DraftFacts) -> Iterator[Outcome]:
    """Every answer about tokenizers and rows of embeddings."""
    yield from _of_sizes(facts)
    for words, model in (("the draft", draft), ("the target", target)):
        yield from _of_rows(words, model)
    theirs = None if target is None else target.tokenizer
    if draft.tokenizer is None:
        other = draft.other_tokenizer
        if other is not None:
            yield NotChecked(
                id="tokenizer/mismatch", reason=f"of the draft there is only {other}, which is not read"
            )
        elif facts.kind == "model":
            yield NotChecked(id="tokenizer/mismatch", reason="the draft has no tokenizer.json")
        else:
            words = "the draft ships no tokenizer: engines use the target's"
            yield Cleared(id="tokenizer/mismatch", summary=words)
        return
    if theirs is None:
        yield NotChecked(
            id="tokenizer/mismatch",
            reason="the target's tokenizer.json is unknown; give the target with --target",
            missing=("target.tokenizer",),
        )
        return
    yield from _of_texts(draft.tokenizer, theirs)


def _of_texts(own: Tokenizer, theirs: Tokenizer) -> Iterator[Outcome]:
    if own.digest == theirs.digest:
        yield Cleared(id="tokenizer/mismatch", summary="both tokenizer.json are byte for byte the same")
        return
    shared = own.texts.keys() & theirs.texts.keys()
    differing = sorted(i for i in shared if own.texts[i] != theirs.texts[i])
    if differing:
        first = differing[0]
        yield Finding(
            id="tokenizer/mismatch",
            strength=Strength.CERTAIN,
            summary=f"{len(differing):,} of {len(shared):,} ids stand for different text; id {first} is "
            f"{own.texts[first][:20]!r} for the draft and {theirs.texts[first][:20]!r} for the target.",
            advice="This draft needs another target, or an engine that translates between vocabularies.",
            evidence={"ids": differing[:_WITNESSES], "count": len(differing), "shared": len(shared)},
        )
        return
    only = len(own.texts.keys() ^ theirs.texts.keys())
    words = f"equal text at all {len(shared):,} shared ids"
    yield Cleared(
        id="tokenizer/mismatch",
        summary=f"{words}; {only:,} ids only in one of the two (padding or added tokens)" if only else words,
    )
    for kind in sorted(own.special_ids.keys() & theirs.special_ids.keys()):
        if not set(own.special_ids[kind]) & set(theirs.special_ids[kind]):
            yield Finding(
                id="tokenizer/mismatch",
                strength=Strength.HINT,
                summary=f"{kind} is {list(own.special_ids[kind])} for the draft and "
                f"{list(theirs.special_ids[kind])} for the target.",
                advice="Take the target's; a draft that cannot propose the end costs a step per answer.",
                evidence={"draft": list(own.special_ids[kind]), "target": list(theirs.special_ids[kind])},
            )


def _of_rows(words: str, model: Checkpoint | None) -> Iterator[Finding]:
    """Ids that a tokenizer gives out and the model has no row for."""
    found = tokenizer_facts(model)
    if found is not None and found.rows is not None and found.highest >= found.rows:
        yield Finding(
            id="tokenizer/mismatch",
            strength=Strength.STRONG,
            summary=f"The tokenizer of {words} has ids up to {found.highest:,}, its embeddings "
            f"{found.rows:,} rows.",
            advice="Take the tokenizer that belongs to the weights; tokens were added to one of the two.",
            evidence={"highest_id": found.highest, "rows": found.rows},
        )


def _of_sizes(facts: DraftFacts) -> Iterator[Outcome]:
    """Rows of embeddings and vocabulary sizes."""
    rows = facts.shape("embed_tokens.weight")
    own, real = facts.config.integer("vocab_size"), facts.target.integer("vocab_size")
    if own is not None and real is not None and own != real and facts.kind != "model":
        yield Finding(
            id="tokenizer/mismatch",
            strength=Strength.HINT,
            summary=f"config.json of the draft says vocab_size {own:,}, the target has {real:,}.",
            advice="Harmless where one only pads its table; a loader may take it for a reduced vocabulary.",
            evidence={"draft": own, "target": real},
        )
    if rows is not None and len(rows) == 2 and own is not None and rows[0] != own:
        yield Finding(
            id="tokenizer/mismatch",
            strength=Strength.HINT,
            summary=f"embed_tokens has {rows[0]:,} rows, config.json says vocab_size {own:,}.",
            advice="Rows beyond the vocabulary are padding; fewer rows than ids are a fault.",
            evidence={"rows": rows[0], "vocab_size": own},
        )
