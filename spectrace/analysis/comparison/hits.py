"""Every place in which proposals, picks, decisions or committed tokens differ, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spectrace.analysis.comparison.rows import (
    CUT,
    MALFORMED,
    PREFILL,
    SIMULATED,
    SUMMED,
    TREE,
    Ids,
    Rows,
    alike,
    both_known,
    differ,
    spans,
)
from spectrace.analysis.comparison.text_pair import TextPair
from spectrace.format.columns import Array

_ROWS_AT_ONCE = 1 << 12
"""Proposals compared at once, so that a long trace needs little memory."""


@dataclass(frozen=True, slots=True)
class Hits:
    """Places that differ: rows of A and B and an index, in the order of A's rows."""

    compared: int
    a: Array
    b: Array
    index: Array
    values: tuple[Array, Array]
    """Ids or counts; -1 is not known apart."""
    has: tuple[Array, Array]
    """Whether there is a value."""


class Proposals:
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

    def hits(self) -> Hits:
        """Proposals that differ in a token or in length."""
        chosen = self.differs | self.only_length
        mine, theirs, index = self.mine[chosen], self.theirs[chosen], self.index[chosen]
        has = index < self.a.drafted[mine], index < self.b.drafted[theirs]
        values = (
            _values(self.a.proposal, self.a.draft_starts[mine] + index, has[0]),
            _values(self.b.proposal, self.b.draft_starts[theirs] + index, has[1]),
        )
        return Hits(len(self.mine), mine, theirs, index, values, has)

    def telling(self) -> Array | None:
        """Of the hits, those in a token, where there is one: a length says less."""
        in_token = np.flatnonzero(self.differs[self.differs | self.only_length])
        return in_token if len(in_token) else None

    def decisions(self) -> Hits:
        """Draft tokens that both proposed, accepted by one and not by the other."""
        a, b = self.a, self.b
        doubtful = (a.marks[self.mine] | b.marks[self.theirs]) & (SIMULATED | SUMMED | MALFORMED)
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
        return Hits(
            int((shared > 0).sum()),
            mine[other],
            theirs[other],
            np.minimum(*counts)[other],
            (counts[0][other], counts[1][other]),
            (everywhere, everywhere),
        )


def differing_picks(a: Rows, b: Rows, texts: TextPair) -> Hits:
    """Places at which the targets picked different tokens."""
    mine, theirs = texts.common
    at, other_at = texts.a.at[mine], texts.b.at[theirs]
    known = int(both_known(a.picks, at, b.picks, other_at).sum())
    differs = np.flatnonzero(differ(a.picks, at, b.picks, other_at))
    return _token_hits(a, b, texts, known, (mine[differs], theirs[differs]), (a.picks, b.picks))


def forks(a: Rows, b: Rows, texts: TextPair) -> Hits:
    """Tokens at which texts part."""
    compared = len(texts.common[0])
    return _token_hits(a, b, texts, compared, texts.forked, (a.committed, b.committed))


def _token_hits(
    a: Rows, b: Rows, texts: TextPair, compared: int, tokens: tuple[Array, Array], ids: tuple[Ids, Ids]
) -> Hits:
    mine, theirs = tokens
    at, other_at = texts.a.at[mine], texts.b.at[theirs]
    row, other_row = texts.a.row[mine], texts.b.row[theirs]
    everywhere = np.ones(len(mine), bool)
    values = _values(ids[0], at, everywhere), _values(ids[1], other_at, everywhere)
    return Hits(compared, row, other_row, at - a.token_starts[row], values, (everywhere, everywhere))


# --- telling -----------------------------------------------------------------------------------------


def _values(ids: Ids, at: Array, has: Array) -> Array:
    found = np.zeros(len(at), np.int64)
    if not ids.is_empty:
        found[has] = ids.values[at[has]]
    return found
