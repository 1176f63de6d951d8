"""Counts over steps: what the index keeps so that no question about a whole run reads the whole file.

Counts add up across frames, files and ranks. Sums and tallies only: a rate is made in analysis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from spectrace.format.columns import Array, Column, Columns, per_row

MAX_POSITIONS = 256
"""Positions counted one by one; deeper ones are counted in the last."""
MAX_WORDS = 64
"""Most words tallied; a run has a handful, a hostile file may name thousands."""


@dataclass(slots=True)
class Counts:
    """Tallies over a set of steps; ``a.add(b)`` makes ``a`` the tallies of both."""

    steps: int = 0
    """All steps, prefills included."""
    proposals: int = 0
    """Steps with at least one draft token, but for those flagged as summed."""
    drafted: int = 0
    """Draft tokens (tree nodes) proposed."""
    accepted: int = 0
    steps_reported: int = 0
    """Steps that hold the engine's own count; none in files of an index that knew nothing of it."""
    accepted_reported: int = 0
    """Draft tokens accepted by the engine's own count (`num_accepted_reported`), else by the trace's."""
    emitted: int = 0
    """Tokens committed by all steps."""
    emitted_by_proposals: int = 0
    """Tokens committed by steps with a proposal."""
    rejected: int = 0
    """Steps in which the target refused a token of the proposal."""
    malformed: int = 0
    """Steps whose num_accepted is not within 0..K."""
    proposed_at: list[int] = field(default_factory=list)
    """[position] steps that proposed a token at this position (tree: depth)."""
    reached_at: list[int] = field(default_factory=list)
    """[position] steps that proposed here and accepted everything before: the base of c_j."""
    accepted_at: list[int] = field(default_factory=list)
    """[position] steps that accepted the tokens up to this position."""
    accepted_histogram: list[int] = field(default_factory=list)
    """[a] steps with a proposal of which a tokens were accepted."""
    final_kinds: dict[str, int] = field(default_factory=dict)
    stops: dict[str, int] = field(default_factory=dict)
    timed: dict[str, list[int]] = field(default_factory=dict)
    """draft_ns, verify_ns, step_ns -> [steps with a time >= 0, nanoseconds in all], proposals only."""

    def add(self, other: Counts) -> None:
        """Adds the tallies of other steps."""
        for item in fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            setattr(self, item.name, _added(mine, theirs))

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, as stored in an index frame."""
        return {item.name: _storable(getattr(self, item.name)) for item in fields(self)}


def _storable(value: Any) -> Any:
    """A tally that fits 64 bits; times that a trace makes up may add up to more."""
    if isinstance(value, int):
        return max(-(2**63), min(value, 2**64 - 1))
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return {key: _storable(item) for key, item in value.items()}


def _added(mine: Any, theirs: Any) -> Any:
    if isinstance(mine, int):
        return mine + theirs
    if isinstance(mine, list):
        longer, shorter = (mine, theirs) if len(mine) >= len(theirs) else (theirs, mine)
        return [a + b for a, b in zip(longer, shorter)] + longer[len(shorter) :]
    both = dict(mine)
    for key, value in theirs.items():
        if key in both:
            both[key] = _added(both[key], value)
        elif len(both) < MAX_WORDS:
            both[key] = value
    return both


def counts_from_mapping(value: Any) -> Counts:
    """Counts read from an index frame; what is not a count is left at zero."""
    counts = Counts()
    if not isinstance(value, Mapping):
        return counts
    for item in fields(Counts):
        stored = value.get(item.name)
        if _is_tally(item.name, getattr(counts, item.name), stored):
            setattr(counts, item.name, stored)
    return counts


def _is_tally(name: str, empty: Any, stored: Any) -> bool:
    if isinstance(empty, int):
        return _is_count(stored)
    if isinstance(empty, list):
        return type(stored) is list and len(stored) <= MAX_POSITIONS + 1 and all(map(_is_count, stored))
    if type(stored) is not dict or len(stored) > MAX_WORDS:
        return False
    if name != "timed":
        return all(map(_is_count, stored.values()))
    return all(type(v) is list and len(v) == 2 and all(map(_is_count, v)) for v in stored.values())


def _is_count(stored: Any) -> bool:
    return type(stored) is int and stored >= 0


# --- from columns ------------------------------------------------------------------------------


def count_steps(columns: Columns, num_rows: int) -> Counts:
    """Tallies of the steps of one frame."""
    drafts = per_row(columns.get("proposal_ids"), num_rows)
    emitted = per_row(columns.get("emitted_ids"), num_rows)
    tree = _Nodes(columns, drafts)
    depths = tree.deepest()
    accepted = per_row(columns.get("num_accepted"), num_rows)
    sound = np.clip(accepted, 0, drafts)
    is_reported, counted_by_engine = _reported(columns, sound)
    is_single = ~is_summed(columns, num_rows)
    goes_on = tree.goes_on(sound, depths) & is_single
    counted = np.minimum(sound, MAX_POSITIONS)
    proposed = (drafts > 0) & is_single
    return Counts(
        steps=num_rows,
        proposals=int(proposed.sum()),
        drafted=int(drafts.sum()),
        accepted=int(sound.sum()),
        steps_reported=int(is_reported.sum()),
        accepted_reported=int(np.clip(counted_by_engine, 0, drafts).sum()),
        emitted=int(emitted.sum()),
        emitted_by_proposals=int(emitted[proposed].sum()),
        rejected=int((goes_on & ~_was_cut(sound, emitted, columns)).sum()),
        malformed=int(((accepted < 0) | (accepted > drafts)).sum()),
        proposed_at=_reached(np.minimum(depths[proposed], MAX_POSITIONS)),
        reached_at=_reached((sound + goes_on)[proposed].clip(max=MAX_POSITIONS)),
        accepted_at=_reached(counted[proposed]),
        accepted_histogram=np.bincount(counted[proposed]).tolist(),
        final_kinds=_tally(columns.get("final_kind")),
        stops=_tally(columns.get("stop")),
        timed=dict(_times(columns, proposed)),
    )


REJECTED_COLUMNS = (9, 10, 26, 28, 29, 55)
"""Numbers of the columns that `rejected_rows` reads."""


def rejected_rows(columns: Columns, num_rows: int) -> Array:
    """[rows] bool: the target refused a token of the step's proposal."""
    drafts = per_row(columns.get("proposal_ids"), num_rows)
    emitted = per_row(columns.get("emitted_ids"), num_rows)
    sound = np.clip(per_row(columns.get("num_accepted"), num_rows), 0, drafts)
    tree = _Nodes(columns, drafts)
    refused: Array = tree.goes_on(sound, tree.deepest()) & ~_was_cut(sound, emitted, columns)
    return refused & ~is_summed(columns, num_rows)


def is_summed(columns: Columns, num_rows: int) -> Array:
    """[rows] bool: the step stands for several rounds of which only sums are known, and is no proposal."""
    rows = np.zeros(num_rows, bool)
    flags = columns.get("flags")
    if flags is None or "summed" not in flags.words:
        return rows
    row_of = np.repeat(np.arange(num_rows), per_row(flags, num_rows))
    if flags.known is not None:
        row_of = row_of[flags.known]
    rows[row_of[flags.values == flags.words.index("summed")]] = True
    return rows


def path_lengths(columns: Columns, num_rows: int) -> tuple[Array, Array, Array]:
    """How far each proposal went.

    Returns:
        [rows] longest path drafted (a chain's is K), tokens of it that the target judged with everything
        before them accepted, and tokens accepted, within 0..K.
    """
    drafts = per_row(columns.get("proposal_ids"), num_rows)
    accepted = np.clip(per_row(columns.get("num_accepted"), num_rows), 0, drafts)
    tree = _Nodes(columns, drafts)
    deepest = tree.deepest()
    return deepest, accepted + tree.goes_on(accepted, deepest), accepted


def _was_cut(accepted: Array, emitted: Array, columns: Columns) -> Array:
    """[rows] the end of the text cut the step within its accepted tokens: no token is the target's own."""
    if "emitted_ids" not in columns:
        return np.zeros(len(accepted), bool)
    was_cut: Array = emitted <= accepted
    return was_cut


class _Nodes:
    """The nodes of the proposals of one frame; a row without sound parents is a chain."""

    def __init__(self, columns: Columns, drafts: Array) -> None:
        self._drafts = drafts
        parents = columns.get("parents")
        lengths = np.zeros(len(drafts), np.int64)
        if parents is not None and parents.known is None:
            lengths = per_row(parents, len(drafts))
        self._is_tree = (lengths > 0) & (lengths == drafts)
        self._row = np.repeat(np.arange(len(drafts)), lengths)
        self._start = np.repeat(np.cumsum(lengths) - lengths, lengths)
        self._up = np.zeros(0, np.int64) if parents is None else parents.values.astype(np.int64)
        if len(self._up) != len(self._row):
            self._up = np.full(len(self._row), -1)
        self._last = _last_values(columns.get("accepted_nodes"), len(drafts))

    def deepest(self) -> Array:
        """[rows] length of the longest path of each proposal: K for a chain."""
        index = np.arange(len(self._up)) - self._start
        depth = np.ones(len(self._up), np.int64)
        is_child = (self._up >= 0) & (self._up < index)
        at = np.where(is_child, self._up + self._start, -1)
        # Each round doubles how far up a node has looked: a chain of a million takes twenty.
        while is_child.any():
            depth += np.where(is_child, depth[at], 0)
            at = np.where(is_child, at[at], -1)
            is_child = at >= 0
        deepest = np.zeros(len(self._drafts), np.int64)
        np.maximum.at(deepest, self._row, depth)
        return np.where(self._is_tree, deepest, self._drafts)

    def goes_on(self, accepted: Array, deepest: Array) -> Array:
        """[rows] bool: the proposal has a token behind the accepted ones."""
        goes_on: Array = accepted < deepest
        if not self._is_tree.any() or self._last is None:
            return goes_on
        last, is_known = self._last
        last, is_known = np.where(accepted > 0, last, -1), is_known | (accepted == 0)
        follows = np.zeros(len(accepted), bool)
        follows[self._row[self._up == last[self._row]]] = True
        return np.where(self._is_tree & is_known, follows, goes_on)


def _reported(columns: Columns, accepted: Array) -> tuple[Array, Array]:
    """[rows] whether the engine's own count is there, and accepted tokens by it, else those of the trace."""
    column = columns.get("num_accepted_reported")
    is_known, counted = np.zeros(len(accepted), bool), accepted.astype(np.int64)
    if column is not None:
        is_known[column.present if column.present is not None else slice(None)] = True
        counted[is_known] = column.values
    return is_known, counted


def _last_values(column: Column | None, num_rows: int) -> tuple[Array, Array] | None:
    """[rows] last value of a list, and whether the row has one."""
    if column is None or column.known is not None:
        return None
    lengths = per_row(column, num_rows)
    ends = np.cumsum(lengths)
    has_one = lengths > 0
    last = np.full(num_rows, -1, np.int64)
    last[has_one] = column.values.astype(np.int64)[ends[has_one] - 1]
    return last, has_one


def _reached(depths: Array) -> list[int]:
    """[p] how many of the depths are greater than p."""
    tally = np.bincount(depths)
    return np.cumsum(tally[::-1])[::-1][1:].tolist()  # type: ignore[no-any-return]


def _tally(column: Column | None) -> dict[str, int]:
    if column is None or not column.values.size:
        return {}
    tally = np.bincount(column.values, minlength=len(column.words)).tolist()
    return dict(sorted(zip(column.words, tally), key=lambda item: -item[1])[:MAX_WORDS])


def _times(columns: Columns, proposed: Array) -> Iterator[tuple[str, list[int]]]:
    for name in ("draft_ns", "verify_ns", "step_ns"):
        column = columns.get(name)
        if column is None:
            continue
        rows = proposed if column.present is None else proposed[column.present]
        values = column.values[rows]
        # A clock that went backwards measured nothing.
        values = values[values >= 0]
        if len(values):
            yield name, [len(values), int(values.astype(np.float64).sum())]
