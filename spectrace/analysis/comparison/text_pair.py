"""The committed tokens of two traces beside each other, and where they part.

Tokens are matched by their place in the text, whichever step committed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from spectrace.analysis.comparison.rows import POSITION_BITS, Rows, both_known, differ, narrow, spans
from spectrace.format.columns import Array


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


class TextPair:
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
        self.fork[pair[hits]] = places(keys[hits])
        self.forked = mine[hits], theirs[hits]
        """Tokens of A and B at which texts part, one of each pair that does."""
        common = known & (places(keys) <= self.fork[pair])
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


def places(keys: Array) -> Array:
    """Place within its text of each token."""
    return keys & ((1 << POSITION_BITS) - 1)


def _ends(tokens: Tokens, num_pairs: int) -> Array:
    """[pairs] place behind the last token, -1 of a request without one."""
    ends = np.full(num_pairs, -1, np.int64)
    pairs = tokens.keys >> POSITION_BITS
    ends[pairs] = places(tokens.keys) + 1  # ascending: the last one stays
    return ends
