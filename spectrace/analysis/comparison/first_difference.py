"""Where two runs of the same prompts part: proposal, target pick, decision, committed token.

Rows are compared where they begin at the same committed length of the same request, tokens where they stand
at the same place of the text, so that two engines may cut a text into other steps. Behind the first token in
which the texts differ nothing is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from spectrace.analysis.comparison.alignment import Pair
from spectrace.analysis.comparison.row_pairs import (
    BEHIND_FORK,
    DECISION,
    EMITTED,
    PROPOSAL,
    TARGET_PICK,
    standing_beside,
)
from spectrace.analysis.comparison.rows import (
    CUT,
    MALFORMED,
    POSITION_BITS,
    PREFILL,
    SIMULATED,
    TREE,
    Ids,
    Rows,
    alike,
    both_known,
    differ,
    narrow,
    spans,
)
from spectrace.format.columns import Array

KINDS = ("prompt", "proposal", "target_pick", "decision", "emitted")
"""What is compared, in the order in which one causes the next."""
_BITS = {"proposal": PROPOSAL, "target_pick": TARGET_PICK, "decision": DECISION, "emitted": EMITTED}
_ROWS_AT_ONCE = 1 << 16
"""Proposals compared at once, so that a long trace needs little memory."""
_LISTED = 64
"""Requests whose first difference a result lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place in which two runs differ."""

    kind: str
    """One of `KINDS`."""
    request: tuple[str, str]
    position: int
    """Index of the token within prompt and text."""
    token: int | None
    """The same counted from the first committed token of the request; None in the prompt."""
    steps: tuple[int, int] | None
    """Numbers of the steps within their traces; None in the prompt."""
    index: int
    """Within the proposal, or within what the step of A committed; within the prompt."""
    values: tuple[int | None, int | None]
    """Ids in the target's vocabulary; of a decision, how many of the shared draft tokens were accepted. None
    where one proposal ends."""
    raw: tuple[int | None, int | None] = (None, None)
    """Of a proposal, ids in the draft's vocabulary."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        pairs = ("request", "steps", "values", "raw")
        found = {name: getattr(self, name) for name in self.__slots__}
        return {k: list(v) if k in pairs and v is not None else v for k, v in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What came out of comparing one kind of thing."""

    compared: int
    """Requests of a prompt, steps of a proposal or a decision, tokens of a pick or of the text."""
    differing: int
    requests: int
    """Requests with a difference."""
    first: Difference | None
    """The one in the earliest step of A."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "compared": self.compared,
            "differing": self.differing,
            "requests": self.requests,
            "first": None if self.first is None else self.first.to_mapping(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifferences:
    """Everything that was compared step by step."""

    kinds: Mapping[str, Kind]
    """One entry for each of `KINDS`."""
    only_length: int
    """Proposals that differ only in how many tokens they have."""
    other_shape: int
    """Proposals, a tree and a chain, that are not compared."""
    same_raw_other_id: int
    """Draft tokens with the same raw id and another mapped id."""
    ends_earlier: int
    """Texts that are the same as far as the shorter one goes."""
    unseen: int
    """Tokens before the end of the comparison that only one trace holds; a difference there is not seen."""
    forks: Sequence[Difference]
    """First token in which each pair of texts differs, in the order of A's steps."""
    by_request: Sequence[Difference]
    """First difference of each request, of whatever kind; the first requests."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **{name: kind.to_mapping() for name, kind in self.kinds.items()},
            "proposal_only_length": self.only_length,
            "proposal_other_shape": self.other_shape,
            "same_raw_other_id": self.same_raw_other_id,
            "texts_that_end_earlier": self.ends_earlier,
            "tokens_unseen": self.unseen,
            "by_request": [difference.to_mapping() for difference in self.by_request],
        }


@dataclass(frozen=True, slots=True)
class _Hits:
    """Places that differ: rows of A and B and an index, in the order of A's rows."""

    compared: int
    a: Array
    b: Array
    index: Array
    values: tuple[Array, Array]
    """Ids or counts; -1 is not known apart."""
    has: tuple[Array, Array]
    """Whether there is a value."""


@dataclass
class Tokens:
    """Committed tokens of one trace in the order of pair and place, each place once."""

    rows: Rows
    keys: Array = field(init=False)
    """[tokens] pair << 40 | index of the token."""
    row: Array = field(init=False)
    """[tokens] row that committed it."""
    at: Array = field(init=False)
    """[tokens] index into the rows' ``committed`` and ``picks``."""

    def __post_init__(self) -> None:
        rows = self.rows
        self.row = np.repeat(np.arange(len(rows.keys), dtype=np.int32), rows.emitted)
        at = spans(rows.token_starts, rows.emitted)
        self.keys = rows.keys[self.row] + at - rows.token_starts[self.row]
        self.at = narrow(at)
        if (np.diff(self.keys) <= 0).any():
            self.keys, first = np.unique(self.keys, return_index=True)
            self.row, self.at = self.row[first], self.at[first]

    @cached_property
    def starts(self) -> tuple[Array, Array]:
        """Pairs with a token, and the place of the first token of each."""
        pairs, first = np.unique(self.keys >> POSITION_BITS, return_index=True)
        return pairs, self.keys[first]


class Texts:
    """The texts of two traces beside each other, and where they part.

    Args:
        a: rows of A.
        b: rows of B.
        num_pairs: pairs of requests.
        uncompared: pairs whose prompts differ.
    """

    def __init__(self, a: Rows, b: Rows, num_pairs: int, uncompared: Sequence[int] = ()) -> None:
        self.a, self.b = Tokens(a), Tokens(b)
        mine, theirs = _common(self.a.keys, self.b.keys)
        committed = a.committed, b.committed
        at, other_at = self.a.at[mine], self.b.at[theirs]
        known = both_known(committed[0], at, committed[1], other_at)
        differs = differ(committed[0], at, committed[1], other_at)
        del at, other_at
        keys = self.a.keys[mine]
        pair = narrow(keys >> POSITION_BITS)
        if len(uncompared):
            prompts_agree = ~np.isin(pair, np.asarray(uncompared, np.int64))
            known, differs = known & prompts_agree, differs & prompts_agree
        self.fork = np.full(num_pairs, 1 << POSITION_BITS, np.int64)
        """[pairs] place of the first token that differs; beyond every place where none does."""
        self.fork[np.asarray(uncompared, np.int64)] = -1
        hits = np.flatnonzero(differs)
        hits = hits[np.flatnonzero(np.diff(pair[hits], prepend=-1))]
        self.fork[pair[hits]] = _places(keys[hits])
        self.forked = mine[hits], theirs[hits]
        """Tokens of A and B at which texts part, one of each pair that does."""
        common = known & (_places(keys) <= self.fork[pair])
        self.common = (mine, theirs) if common.all() else (mine[common], theirs[common])
        """Tokens of A and B at the same place, up to the first that differs."""

    def unseen(self) -> int:
        """Tokens of one trace that the other lacks, between the first and the last common one."""
        mine, theirs = self.common
        if not len(mine):
            return 0
        pairs = self.a.keys[mine] >> POSITION_BITS
        first = np.flatnonzero(np.diff(pairs, prepend=-1))
        last = np.append(first[1:], len(pairs)) - 1
        held = (mine[last] - mine[first]) + (theirs[last] - theirs[first])
        return int(held.sum() - 2 * (last - first).sum())

    def ends_earlier(self) -> int:
        """Pairs of texts that are the same as far as the shorter one goes."""
        ends = [_ends(tokens, len(self.fork)) for tokens in (self.a, self.b)]
        shares = np.zeros(len(self.fork), bool)
        shares[self.a.keys[self.common[0]] >> POSITION_BITS] = True
        return int((shares & (self.fork == 1 << POSITION_BITS) & (ends[0] != ends[1])).sum())


def compare_rows(a: Rows, b: Rows, texts: Texts, pairs: Sequence[Pair]) -> tuple[FirstDifferences, Array]:
    """Everything that differs before the texts part.

    Returns:
        The differences, and [rows of A] bits of `RowPairs.differs`.
    """
    rows = _rows_to_compare(a, b, texts.fork)
    proposals = _Proposals(a, b, *rows)
    hits = {
        "proposal": proposals.hits(),
        "target_pick": _picks(a, b, texts),
        "decision": proposals.decisions(),
        "emitted": _forks(a, b, texts),
    }
    marks = np.where(a.positions > texts.fork[a.pairs], BEHIND_FORK, 0).astype(np.uint8)
    for name, found in hits.items():
        marks[found.a] |= _BITS[name]
    told = _Teller(a, b, texts, pairs)
    first = {name: _first_of_each(a, found) for name, found in hits.items()}
    prompts = [told.prompt(pair) for pair in pairs if pair.prompt_difference is not None]
    kinds = {"prompt": _prompt_kind(pairs, prompts)}
    for name, found in hits.items():
        kinds[name] = Kind(
            compared=found.compared,
            differing=len(found.a),
            requests=len(first[name]),
            first=told.earliest(name, found, proposals.telling() if name == "proposal" else None),
        )
    forks = hits["emitted"]
    order = np.argsort(a.numbers[forks.a], kind="stable")[:_LISTED]
    return FirstDifferences(
        kinds=kinds,
        only_length=int(proposals.only_length.sum()),
        other_shape=proposals.num_other_shape,
        same_raw_other_id=proposals.same_raw_other_id,
        ends_earlier=texts.ends_earlier(),
        unseen=texts.unseen(),
        forks=[told.difference("emitted", forks, int(at)) for at in order],
        by_request=(prompts + list(told.by_request(hits, first)))[:_LISTED],
    ), marks


def _rows_to_compare(a: Rows, b: Rows, fork: Array) -> tuple[Array, Array]:
    """Rows of A and B that begin at the same place, before the texts part; each once."""
    beside, is_same = standing_beside(a, b)
    mine = np.flatnonzero(is_same)
    last = np.append(np.diff(a.keys[mine]) != 0, True)[: len(mine)]
    mine = mine[last]
    mine = mine[a.positions[mine] <= fork[a.pairs[mine]]]
    return mine, beside[mine]


class _Proposals:
    """Proposals of rows that begin at the same place; index m is the first that differs, K where one ends."""

    def __init__(self, a: Rows, b: Rows, mine: Array, theirs: Array) -> None:
        shape = (a.marks[mine] & TREE) == (b.marks[theirs] & TREE)
        waits = ((a.marks[mine] & PREFILL > 0) & (a.drafted[mine] == 0)) | (
            (b.marks[theirs] & PREFILL > 0) & (b.drafted[theirs] == 0)
        )
        proposed = ((a.drafted[mine] > 0) | (b.drafted[theirs] > 0)) & ~waits
        one_sided = (a.drafted[mine] == 0) | (b.drafted[theirs] == 0)
        self.num_other_shape = int((~shape & proposed & ~one_sided).sum())
        kept = proposed & (shape | one_sided)
        self.a, self.b = a, b
        self.mine, self.theirs = mine[kept], theirs[kept]
        self.shared = np.minimum(a.drafted[self.mine], b.drafted[self.theirs])
        self.index = self.shared.copy()
        self.same_raw_other_id = 0
        for start in range(0, len(self.mine), _ROWS_AT_ONCE):
            self._find(slice(start, start + _ROWS_AT_ONCE))
        self.differs = self.index < self.shared
        self.only_length = ~self.differs & (a.drafted[self.mine] != b.drafted[self.theirs])

    def _find(self, rows: slice) -> None:
        """Sets the index of some rows."""
        a, b, shared = self.a, self.b, self.shared[rows]
        at = spans(a.draft_starts[self.mine[rows]], shared)
        other_at = spans(b.draft_starts[self.theirs[rows]], shared)
        other_id = differ(a.proposal, at, b.proposal, other_at)
        self.same_raw_other_id += int((other_id & alike(a.raw, at, b.raw, other_at)).sum())
        tokens = np.flatnonzero(other_id | differ(a.parents, at, b.parents, other_at))
        begins = np.cumsum(shared, dtype=np.int64) - shared
        row = np.searchsorted(begins, tokens, "right") - 1
        first = np.flatnonzero(np.diff(row, prepend=-1))
        self.index[rows][row[first]] = tokens[first] - begins[row[first]]

    def hits(self) -> _Hits:
        """Proposals that differ in a token or in length."""
        chosen = self.differs | self.only_length
        mine, theirs, index = self.mine[chosen], self.theirs[chosen], self.index[chosen]
        has = index < self.a.drafted[mine], index < self.b.drafted[theirs]
        values = (
            _values(self.a.proposal, self.a.draft_starts[mine] + index, has[0]),
            _values(self.b.proposal, self.b.draft_starts[theirs] + index, has[1]),
        )
        return _Hits(len(self.mine), mine, theirs, index, values, has)

    def telling(self) -> Array | None:
        """Of the hits, those in a token, where there is one: a length says less."""
        in_token = np.flatnonzero(self.differs[self.differs | self.only_length])
        return in_token if len(in_token) else None

    def decisions(self) -> _Hits:
        """Draft tokens that both proposed, accepted by one and not by the other."""
        a, b = self.a, self.b
        doubtful = (a.marks[self.mine] | b.marks[self.theirs]) & (SIMULATED | MALFORMED)
        usable = (doubtful == 0) & (self.shared > 0)
        # Parts of a tree tell nothing: which node stands for which?
        usable &= (a.marks[self.mine] & TREE == 0) | (~self.differs & ~self.only_length)
        mine, theirs, shared = self.mine[usable], self.theirs[usable], self.index[usable]
        for rows, own in ((a, mine), (b, theirs)):
            cut = rows.marks[own] & CUT > 0
            judged = np.minimum(rows.accepted[own], rows.emitted[own])
            shared = np.where(cut, np.minimum(shared, judged), shared)
        counts = np.minimum(a.accepted[mine], shared), np.minimum(b.accepted[theirs], shared)
        other = counts[0] != counts[1]
        everywhere = np.ones(int(other.sum()), bool)
        return _Hits(
            int((shared > 0).sum()),
            mine[other],
            theirs[other],
            np.minimum(*counts)[other],
            (counts[0][other], counts[1][other]),
            (everywhere, everywhere),
        )


def _picks(a: Rows, b: Rows, texts: Texts) -> _Hits:
    """Places at which the targets picked different tokens."""
    mine, theirs = texts.common
    at, other_at = texts.a.at[mine], texts.b.at[theirs]
    known = int(both_known(a.picks, at, b.picks, other_at).sum())
    differs = np.flatnonzero(differ(a.picks, at, b.picks, other_at))
    return _token_hits(a, b, texts, known, (mine[differs], theirs[differs]), (a.picks, b.picks))


def _forks(a: Rows, b: Rows, texts: Texts) -> _Hits:
    """Tokens at which texts part."""
    compared = len(texts.common[0])
    return _token_hits(a, b, texts, compared, texts.forked, (a.committed, b.committed))


def _token_hits(
    a: Rows, b: Rows, texts: Texts, compared: int, tokens: tuple[Array, Array], ids: tuple[Ids, Ids]
) -> _Hits:
    mine, theirs = tokens
    at, other_at = texts.a.at[mine], texts.b.at[theirs]
    row, other_row = texts.a.row[mine], texts.b.row[theirs]
    everywhere = np.ones(len(mine), bool)
    values = _values(ids[0], at, everywhere), _values(ids[1], other_at, everywhere)
    return _Hits(compared, row, other_row, at - a.token_starts[row], values, (everywhere, everywhere))


# --- telling -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Teller:
    """Makes a `Difference` of a hit."""

    a: Rows
    b: Rows
    texts: Texts
    pairs: Sequence[Pair]

    def prompt(self, pair: Pair) -> Difference:
        index, mine, theirs = pair.prompt_difference or (0, None, None)
        return Difference(
            kind="prompt",
            request=pair.names,
            position=index,
            token=None,
            steps=None,
            index=index,
            values=(mine, theirs),
        )

    def difference(self, kind: str, hits: _Hits, at: int) -> Difference:
        row, other_row, index = int(hits.a[at]), int(hits.b[at]), int(hits.index[at])
        pair, position = int(self.a.pairs[row]), int(self.a.positions[row]) + index
        pairs, starts = self.texts.a.starts
        place = int(np.searchsorted(pairs, pair))
        has_text = place < len(pairs) and int(pairs[place]) == pair
        start = int(_places(starts[place])) if has_text else position
        values = [int(v[at]) if has[at] else None for v, has in zip(hits.values, hits.has)]
        raw: list[int | None] = [None, None]
        if kind == "proposal":
            raw = [_raw(self.a, row, index), _raw(self.b, other_row, index)]
        return Difference(
            kind=kind,
            request=self.pairs[pair].names,
            position=position,
            token=max(position - start, 0),
            steps=(int(self.a.numbers[row]), int(self.b.numbers[other_row])),
            index=index,
            values=(values[0], values[1]),
            raw=(raw[0], raw[1]),
        )

    def earliest(self, kind: str, hits: _Hits, chosen: Array | None = None) -> Difference | None:
        """Of the hits, or of those chosen, the one in the earliest step of A."""
        among = np.arange(len(hits.a)) if chosen is None else chosen
        if not len(among):
            return None
        return self.difference(kind, hits, int(among[np.argmin(self.a.numbers[hits.a[among]])]))

    def by_request(self, hits: Mapping[str, _Hits], first: Mapping[str, Array]) -> Iterator[Difference]:
        """The first difference of each request, of whatever kind."""
        best: dict[int, tuple[int, int, str, int]] = {}
        for rank, (kind, found) in enumerate(hits.items()):
            for at in first[kind][: 4 * _LISTED].tolist():
                row = int(found.a[at])
                place = int(self.a.positions[row]) + int(found.index[at]), rank, kind, at
                pair = int(self.a.pairs[row])
                best[pair] = min(best.get(pair, place), place)
        for pair in sorted(best)[:_LISTED]:
            _, _, kind, at = best[pair]
            yield self.difference(kind, hits[kind], at)


def _prompt_kind(pairs: Sequence[Pair], differing: Sequence[Difference]) -> Kind:
    return Kind(
        compared=sum(pair.is_checked for pair in pairs),
        differing=len(differing),
        requests=len(differing),
        first=differing[0] if differing else None,
    )


def _first_of_each(a: Rows, hits: _Hits) -> Array:
    """The first hit of each pair of requests."""
    _, first = np.unique(a.pairs[hits.a], return_index=True)
    return first


def _raw(rows: Rows, row: int, index: int) -> int | None:
    if rows.raw.is_empty or index >= int(rows.drafted[row]):
        return None
    at = np.array([int(rows.draft_starts[row]) + index])
    return int(rows.raw.values[at[0]]) if rows.raw.known_at(at)[0] else None


def _values(ids: Ids, at: Array, has: Array) -> Array:
    found = np.zeros(len(at), np.int64)
    if not ids.is_empty:
        found[has] = ids.values[at[has]]
    return found


def _common(a: Array, b: Array) -> tuple[Array, Array]:
    """Indices of the values that two ascending arrays without repetition share."""
    if np.array_equal(a, b):
        same = np.arange(len(a), dtype=np.int32)
        return same, same
    if not len(a) or not len(b):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    at = np.minimum(np.searchsorted(b, a), len(b) - 1)
    mine = np.flatnonzero(b[at] == a)
    return narrow(mine), narrow(at[mine])


def _places(keys: Array) -> Array:
    return keys & ((1 << POSITION_BITS) - 1)


def _ends(tokens: Tokens, num_pairs: int) -> Array:
    """[pairs] place behind the last token, -1 of a request without one."""
    ends = np.full(num_pairs, -1, np.int64)
    pairs = tokens.keys >> POSITION_BITS
    ends[pairs] = _places(tokens.keys) + 1  # ascending: the last one stays
    return ends
