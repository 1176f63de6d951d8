"""Counts by request, segment, context length or batch row: the questions that the index cannot answer.

For a table: every sum of every group, exact, by one thing at a time. What is drawn along a run, with its
spread and by several things in one reading, is in `curves`. Reads the columns once, block by block, in memory
bounded by the number of groups; opens nothing and decodes no step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spectrace.analysis.block import Block, blocks
from spectrace.analysis.numbering import numbered_files
from spectrace.format.columns import Array
from spectrace.format.counts import MAX_POSITIONS, Counts, path_lengths, rejected_rows

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

BY = {"request": "request", "segment": "segment", "context": "position", "batch_row": "batch_row"}
"""What a breakdown may be by -> the field it reads."""
NOT_RECORDED = "not recorded"
OTHERS = "others"
MAX_GROUPS = 1024
"""Most segments or batch rows told apart; what a hostile file names beyond is counted together."""
MAX_CELLS = 1 << 22
"""Most numbers kept per position: with very many groups the deepest positions share one."""
_FIELDS = ("request", "proposal_ids", "parents", "num_accepted", "accepted_nodes", "emitted_ids", "flags")
_NEVER = np.iinfo(np.int64).max
_SUMS = ("steps", "proposals", "drafted", "accepted", "emitted", "emitted_by_proposals", "rejected")


class Group(NamedTuple):
    """One line of a breakdown."""

    name: str
    counts: Counts
    first_row: int
    """Number of its first step within the trace."""


def break_down(
    trace: Trace,
    by: str,
    on_progress: Callable[[int], None] | None = None,
    *,
    first_steps: int | None = None,
) -> Iterator[Group]:
    """Counts of each group that has a step.

    Args:
        trace: an open trace.
        by: one of `BY`. A context is the committed length before the step, in buckets that double.
        on_progress: told how many steps have been read so far.
        first_steps: read about so many steps and no more; None for all.

    Returns:
        The groups: requests and segments in the order of their first steps, contexts and
        batch rows ascending. Sums and positions are filled in, they add up to those of ``trace.counts``;
        no tally of words and no times.
    """
    groups = _Groups(by)
    sums = _Sums()
    read = 0
    for block in blocks(trace, dict.fromkeys((*_FIELDS, BY[by]))):
        sums.add(block, groups.of(block), len(groups))
        read += block.num_rows
        if on_progress is not None:
            on_progress(read)
        if first_steps is not None and read >= first_steps:
            break
    places: dict[str, list[int]] = {}
    names = groups.names(trace)
    for at in groups.order(sums.first_row):
        places.setdefault(names[at], []).append(at)  # a request that several files name is one
    for name, own in places.items():
        counts = sums.counts(own[0])
        for at in own[1:]:
            counts.add(sums.counts(at))
        yield Group(name, counts, min(int(sums.first_row[at]) for at in own))


# --- which group -----------------------------------------------------------------------------------


class _Groups:
    """Numbers of groups, given out as they turn up."""

    def __init__(self, by: str) -> None:
        self._by = by
        self._keys: dict[int | str, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def of(self, block: Block) -> Array:
        """[rows] number of the group of each step."""
        if self._by == "request":
            self._size = max(self._size, int(block.requests.max(initial=-1)) + 1)
            return block.requests
        keys, words = self._of_rows(block)
        different, index = np.unique(keys, return_inverse=True)
        table = [self._number(words[key] if words and key >= 0 else key) for key in different.tolist()]
        self._size = len(self._keys)
        return np.array(table, np.int64)[index]

    def _of_rows(self, block: Block) -> tuple[Array, tuple[str, ...]]:
        """[rows] what tells the groups of a block apart, -1 = not recorded, and words it may stand for."""
        nothing = np.full(block.num_rows, -1), ()
        if self._by == "segment":
            return block.words("segment") or nothing
        found = block.scalar(BY[self._by])
        if found is None:
            return nothing
        own = np.maximum(found.values, 0)
        if self._by == "context":  # as many binary digits: 1, 2-3, 4-7 and so on share a bucket
            own = np.ceil(np.log2(own.astype(np.float64) + 1)).astype(np.int64)
        return np.where(found.known, own, -1), ()

    def _number(self, key: int | str) -> int:
        if key not in self._keys and len(self._keys) >= MAX_GROUPS:
            key = OTHERS
        return self._keys.setdefault(key, len(self._keys))

    def names(self, trace: Trace) -> list[str]:
        """Name of each group by its number."""
        return _request_names(trace) if self._by == "request" else [self._name(key) for key in self._keys]

    def _name(self, key: int | str) -> str:
        if isinstance(key, str):
            return key
        if key < 0:
            return NOT_RECORDED
        if self._by == "context" and key > 1:
            return f"{2 ** (key - 1):,}-{2**key - 1:,}"
        return f"{key:,}"

    def order(self, first_row: Array) -> list[int]:
        """Numbers of the groups that any step is in, in the order in which they are shown."""
        if self._by in ("context", "batch_row"):
            known = {number: key for key, number in self._keys.items()}
            return sorted(known, key=lambda at: (isinstance(known[at], str), known[at]))
        numbers: list[int] = np.argsort(first_row, kind="stable")[
            : np.count_nonzero(first_row < _NEVER)
        ].tolist()
        return numbers


def _request_names(trace: Trace) -> list[str]:
    """Names by the numbers that `Block.requests` gives."""
    names: list[str] = []
    for own in numbered_files(trace):
        names += [*own.names(own.numbers).values(), own.file.request_name(None)]
    return names


# --- what is counted -------------------------------------------------------------------------------


class _Sums:
    """Sums of each group."""

    def __init__(self) -> None:
        self.first_row = np.zeros(0, np.int64)
        """[groups] number of its first step."""
        self._sums = {name: np.zeros(0, np.int64) for name in _SUMS}
        self._at = [np.zeros((0, 2), np.int32) for _ in range(3)]
        """[groups, length] steps whose longest path, judged part, accepted part is so long."""

    def add(self, block: Block, group: Array, num_groups: int) -> None:
        """Counts a block."""
        deepest, judged, accepted = path_lengths(block.columns, block.num_rows)
        proposed = block.is_proposal
        self._grow(num_groups, int(deepest.max(initial=0)))
        found, first, index = np.unique(group, return_index=True, return_inverse=True)
        self.first_row[found] = np.minimum(self.first_row[found], first + block.first_row)
        values = {
            "steps": np.ones(block.num_rows, np.int64),
            "proposals": proposed,
            "drafted": block.drafted,
            "accepted": accepted,
            "emitted": block.emitted,
            "emitted_by_proposals": block.emitted * proposed,
            "rejected": rejected_rows(block.columns, block.num_rows),
        }
        for name, weights in values.items():
            self._sums[name][found] += np.bincount(index, weights, minlength=len(found)).astype(np.int64)
        for table, lengths in zip(self._at, (deepest, judged, accepted)):
            width = table.shape[1]
            cells = index[proposed] * width + np.minimum(lengths[proposed], width - 1)
            tally = np.bincount(cells, minlength=len(found) * width)
            table[found] += tally.reshape(len(found), width).astype(np.int32)

    def _grow(self, num_groups: int, depth: int) -> None:
        """Makes room for groups, and for longer proposals as long as the tables stay small."""
        groups, width = len(self.first_row), self._at[0].shape[1]
        if num_groups > groups:
            groups = max(num_groups, 2 * groups)
            room = groups - len(self.first_row)
            self.first_row = np.append(self.first_row, np.full(room, _NEVER))
            self._sums = {name: np.append(own, np.zeros(room, np.int64)) for name, own in self._sums.items()}
        # A table never gets narrower: what was counted one by one stays so.
        width = max(width, min(1 + min(depth, MAX_POSITIONS), MAX_CELLS // groups))
        if self._at[0].shape != (groups, width):
            wider = [np.zeros((groups, width), np.int32) for _ in self._at]
            for new, old in zip(wider, self._at):
                new[: old.shape[0], : old.shape[1]] = old
            self._at = wider

    def counts(self, group: int) -> Counts:
        """Those of one group."""
        proposed, reached, accepted = (_at_least(table[group]) for table in self._at)
        sums = {name: int(own[group]) for name, own in self._sums.items()}
        return Counts(**sums, proposed_at=proposed, reached_at=reached, accepted_at=accepted)  # type: ignore[arg-type]


def _at_least(tally: Array) -> list[int]:
    """[p] how many are longer than p, nothing behind the last."""
    found: list[int] = np.cumsum(tally[::-1])[::-1][1:].tolist()
    while found and not found[-1]:
        found.pop()
    return found
