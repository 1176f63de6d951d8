"""A few thousand steps as arrays: per row, per draft token, per place where the target picked.

Owns the reading of ragged columns, also of damaged ones: a list of the wrong length is unknown, never
shifted. Says what was reached. Knows no rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spectrace.analysis.numbering import numbered_files
from spectrace.format.columns import Array, Column, Columns
from spectrace.format.counts import MAX_POSITIONS
from spectrace.format.fields import LEAF_BY_PATH
from spectrace.format.joining import joined_columns

if TYPE_CHECKING:
    from spectrace.format.chunk import Chunk
    from spectrace.format.reader import Trace

ROWS_AT_ONCE = 8192
"""Steps joined into one block, so that a step costs no call of numpy of its own."""


class Values(NamedTuple):
    """Values with what is known of them; what is unknown is 0."""

    values: Array
    known: Array
    """[len(values)] bool."""


@dataclass
class Block:
    """Steps that follow each other in a trace."""

    columns: Columns
    num_rows: int
    first_row: int
    """Number of the first step within the trace."""
    request_numbers: range
    """Numbers of the requests that the file of these steps declares; see `numbered_files`."""

    # --- per row -----------------------------------------------------------------------------

    def scalar(self, path: str) -> Values | None:
        """[rows] a number, as int64 or float64; None when no row has it."""
        column = self.columns.get(path)
        if column is None:
            return None
        values = _wide(column)
        known = np.ones(self.num_rows, bool) if column.present is None else column.present.copy()
        if column.known is not None:  # an optional key of an object
            slots = np.flatnonzero(known)
            known[slots[~column.known]] = False
        if known.all():
            return Values(values, known)
        spread = np.zeros(self.num_rows, values.dtype)
        spread[known] = values
        return Values(spread, known)

    def words(self, path: str) -> tuple[Array, tuple[str, ...]] | None:
        """[rows] index into the words, -1 where a row has none; None when no row has any."""
        column = self.columns.get(path)
        found = self.scalar(path)
        if column is None or found is None:
            return None
        return np.where(found.known, found.values, -1), column.words

    def lengths(self, path: str) -> Array:
        """[rows] length of a list, 0 where a row has none."""
        column = self.columns.get(path)
        if column is None:
            return np.zeros(self.num_rows, np.int64)
        if column.present is None:
            return column.lengths[0]
        spread = np.zeros(self.num_rows, np.int64)
        spread[column.present] = column.lengths[0]
        return spread

    def has(self, path: str) -> Array:
        """[rows] whether the row has the field."""
        column = self.columns.get(path)
        if column is None:
            return np.zeros(self.num_rows, bool)
        return np.ones(self.num_rows, bool) if column.present is None else column.present

    @cached_property
    def requests(self) -> Array:
        """[rows] number of the request within the whole trace; see `numbered_files`."""
        found = self.scalar("request")
        numbers = np.full(self.num_rows, -1, np.int64) if found is None else found.values
        size = len(self.request_numbers)
        declared = (numbers >= 0) & (numbers < size)
        return np.where(declared, numbers, size) + self.request_numbers.start

    @cached_property
    def request_groups(self) -> tuple[Array, Array]:
        """The requests of this block, and [rows] index into them."""
        found, index = np.unique(self.requests, return_inverse=True)
        return found, index

    @cached_property
    def drafted(self) -> Array:
        """[rows] K."""
        return self.lengths("proposal_ids")

    @cached_property
    def raw_accepted(self) -> Array:
        """[rows] num_accepted as recorded."""
        found = self.scalar("num_accepted")
        return np.zeros(self.num_rows, np.int64) if found is None else found.values

    @cached_property
    def accepted(self) -> Array:
        """[rows] num_accepted within 0..K."""
        return np.clip(self.raw_accepted, 0, self.drafted)

    @cached_property
    def emitted(self) -> Array:
        """[rows] tokens committed."""
        return self.lengths("emitted_ids")

    @cached_property
    def positions(self) -> Array:
        """[rows] committed length before the step."""
        found = self.scalar("position")
        return np.zeros(self.num_rows, np.int64) if found is None else found.values

    @cached_property
    def is_cut(self) -> Array:
        """[rows] the step ended inside its accepted tokens: nothing was refused."""
        return (self.emitted <= self.accepted) & (self.emitted > 0)

    @cached_property
    def is_tree(self) -> Array:
        """[rows] the proposal is a tree."""
        return self.has("parents")

    @cached_property
    def is_prefill(self) -> Array:
        """[rows] flagged as a prefill."""
        return self.flagged("prefill")

    @cached_property
    def is_proposal(self) -> Array:
        """[rows] one round with draft tokens, no sum of several: what every number of a run counts."""
        return (self.drafted > 0) & ~self.flagged("summed")

    @cached_property
    def is_real(self) -> Array:
        """[rows] a proposal that the models decided about: no dummy, replay or simulation."""
        return self.is_proposal & ~self.flagged("dummy", "replay", "simulated")

    def flagged(self, *words: str) -> Array:
        """[rows] flagged with any of the words."""
        column = self.columns.get("flags")
        rows = np.zeros(self.num_rows, bool)
        if column is None:
            return rows
        codes = [at for at, word in enumerate(column.words) if word in words]
        if codes and len(column.values):
            row_of = np.repeat(np.arange(self.num_rows), self.lengths("flags"))
            if column.known is not None:
                row_of = row_of[column.known]
            rows[row_of[np.isin(column.values, codes)]] = True
        return rows

    # --- per draft token ---------------------------------------------------------------------

    @cached_property
    def starts(self) -> Array:
        """[rows] where a row's draft tokens begin."""
        return np.cumsum(self.drafted) - self.drafted

    @cached_property
    def token_rows(self) -> Array:
        """[tokens] row of each draft token."""
        return np.repeat(np.arange(self.num_rows), self.drafted)

    @cached_property
    def token_index(self) -> Array:
        """[tokens] index within the proposal."""
        return np.arange(len(self.token_rows)) - self.starts[self.token_rows]

    @cached_property
    def chain_reached(self) -> Array:
        """[tokens] in a real chain: the target judged it after accepting everything before it."""
        rows, index = self.token_rows, self.token_index
        usable = self.is_real & ~self.is_tree
        last = np.where(self.is_cut, np.minimum(self.accepted, self.emitted) - 1, self.accepted)
        reached: Array = usable[rows] & (index <= last[rows])
        return reached

    @cached_property
    def token_accepted(self) -> Array:
        """[tokens] of a chain: accepted."""
        accepted: Array = self.token_index < self.accepted[self.token_rows]
        return accepted

    @cached_property
    def looks_like_chain(self) -> Array:
        """[rows] what was committed begins with the first accepted tokens of the proposal, as in a chain."""
        fits = ~self.is_tree & ~self.has("accepted_nodes")
        committed = self.columns.get("emitted_ids")
        ids = self.tokens("proposal_ids")
        if committed is None or ids is None or not len(committed.values):
            return fits
        values, _ = _spread(committed)
        emitted = self.emitted
        ends = np.cumsum(emitted) - emitted
        inside = self.token_accepted & (self.token_index < emitted[self.token_rows])
        at = np.where(inside, ends[self.token_rows] + self.token_index, 0)
        wrong = inside & (values[np.minimum(at, len(values) - 1)] != ids.values)
        fits[self.token_rows[wrong]] = False
        return fits

    @cached_property
    def chain_slots(self) -> Array:
        """[tokens] of a chain: the place where the target picked against this token."""
        return np.arange(len(self.token_rows)) + self.token_rows

    def tokens(self, path: str) -> Values | None:
        """[tokens] a value of each draft token; None when no row has any."""
        return self._sized(path, self.drafted)

    def slots(self, path: str) -> Values | None:
        """[tokens + rows] a value of each place where the target picked: K + 1 of a row."""
        return self._sized(path, self.drafted + 1)

    @property
    def committed_ids(self) -> Values | None:
        """[emitted tokens] what was committed; None when no row has any."""
        return self._sized("emitted_ids", self.emitted)

    @property
    def path_nodes(self) -> Values | None:
        """[accepted tokens] index of each accepted node within its proposal; None when no row says."""
        return self._sized("accepted_nodes", self.accepted)

    @cached_property
    def root_slots(self) -> Array:
        """[rows] the place of the target's first pick."""
        return self.starts + np.arange(self.num_rows)

    @cached_property
    def own_slots(self) -> Array:
        """[rows] of a chain: the place of the target's own token."""
        return self.root_slots + self.accepted

    def element(self, path: str, index: Array) -> Values | None:
        """[rows] one element of a list of free length; unknown where the list is shorter."""
        column = self.columns.get(path)
        if column is None:
            return None
        spread, there = _spread(column)
        lengths = self.lengths(path)
        starts = np.cumsum(lengths) - lengths
        within = (index >= 0) & (index < lengths)
        at = np.where(within, starts + index, 0)
        if not len(spread):
            return Values(np.zeros(self.num_rows, spread.dtype), within & False)
        return Values(spread[at], within & there[at])

    def _sized(self, path: str, size: Array) -> Values | None:
        column = self.columns.get(path)
        if column is None or column.leaf.depth != 1:
            return None
        lengths = self.lengths(path)
        values, there = _spread(column)
        fits = self.has(path) & (lengths == size)
        if fits.all():
            return Values(values, there)
        spread, known = np.zeros(int(size.sum()), values.dtype), np.zeros(int(size.sum()), bool)
        places, given = np.repeat(fits, size), np.repeat(fits, lengths)
        spread[places] = values[given]
        known[places] = there[given]
        return Values(spread, known)

    # --- witnesses -----------------------------------------------------------------------------

    def numbers(self, rows: Array) -> Array:
        """Numbers of rows within the trace."""
        return rows + self.first_row


def _wide(column: Column) -> Array:
    """Values in a type whose sums and differences do not wrap."""
    return column.values.astype(np.float64 if column.values.dtype.kind == "f" else np.int64)


def _spread(column: Column) -> tuple[Array, Array]:
    """[elements] values with a place for the unknown ones, and which are known."""
    values = _wide(column)
    if column.known is None:
        return values, np.ones(len(values), bool)
    spread = np.zeros(len(column.known), values.dtype)
    spread[column.known] = values
    return spread, column.known


def blocks(trace: Trace, paths: Mapping[str, int | None]) -> Iterator[Block]:
    """The whole trace, in order, in blocks; damaged frames are left out.

    Args:
        trace: an open trace.
        paths: the columns wanted, by `Leaf.path`, and of how many steps; None for all.
    """
    base = 0
    for part, request_numbers in numbered_files(trace):
        waiting: list[Chunk] = []
        first = rows = 0
        numbers: list[int] = []
        for chunk in part.chunks():
            if waiting and (chunk.first_row != first + rows or rows >= ROWS_AT_ONCE):
                columns = joined_columns(waiting, numbers)
                yield Block(columns, rows, base + first, request_numbers)
                waiting, rows = [], 0
            if not waiting:
                first = chunk.first_row
                numbers = [
                    LEAF_BY_PATH[path].number
                    for path, limit in paths.items()
                    if limit is None or base + first < limit
                ]
            waiting.append(chunk)
            rows += chunk.num_rows
        if waiting:
            columns = joined_columns(waiting, numbers)
            yield Block(columns, rows, base + first, request_numbers)
        base += part.num_rows


def tally(indices: Array, size: int = MAX_POSITIONS) -> Array:
    """[size] how often each index occurs; those beyond are counted in the last."""
    counts: Array = np.bincount(np.minimum(indices, size - 1), minlength=size)
    return counts
