"""The steps of paired requests as arrays, in the order of pair and committed length.

Owns what a row of one trace is for a comparison: replays and dummies are left out, a count beyond its
proposal is marked, an id that is not known is never equal or different. Compares nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spectrace.analysis.block import Block, Values, blocks
from spectrace.analysis.diagnosis.fingerprints import TapTally
from spectrace.format.columns import Array
from spectrace.format.counts import rejected_rows

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

COLUMNS = (
    "request", "position", "draft_ids", "proposal_ids", "parents", "target_ids", "num_accepted",
    "accepted_nodes", "emitted_ids", "flags",
    "draft_positions", "draft_inputs.rms", "draft_kv_length", "target_kv_length",
)  # fmt: skip
POSITION_BITS = 40
"""Longest text that is compared: 2 ** 40 tokens."""

TREE, PREFILL, SIMULATED, MALFORMED, CUT, SUMMED = 1, 2, 4, 8, 16, 32
"""Marks of a row: `Rows.marks`."""


class Ids(NamedTuple):
    """Ids with what is known of them."""

    values: Array
    known: Array | None
    """[len(values)] bool; None when all are."""

    @property
    def is_empty(self) -> bool:
        """No id is known; then there are no values either."""
        return not len(self.values)

    def known_at(self, at: Array) -> Array:
        """Which of some ids are known."""
        return np.ones(len(at), bool) if self.known is None else self.known[at]


def differ(one: Ids, at: Array, other: Ids, other_at: Array) -> Array:
    """Which of some ids are known to differ."""
    if one.is_empty or other.is_empty:
        return np.zeros(len(at), bool)
    unequal: Array = one.values[at] != other.values[other_at]
    return unequal & _both_known(one, at, other, other_at)


def alike(one: Ids, at: Array, other: Ids, other_at: Array) -> Array:
    """Which of some ids are known to be the same."""
    if one.is_empty or other.is_empty:
        return np.zeros(len(at), bool)
    equal: Array = one.values[at] == other.values[other_at]
    return equal & _both_known(one, at, other, other_at)


def both_known(one: Ids, at: Array, other: Ids, other_at: Array) -> Array:
    """Of which places both ids are known."""
    if one.is_empty or other.is_empty:
        return np.zeros(len(at), bool)
    return np.broadcast_to(_both_known(one, at, other, other_at), len(at))


def _both_known(one: Ids, at: Array, other: Ids, other_at: Array) -> Array | np.bool_:
    found: Array | np.bool_ = np.True_
    for ids, places in ((one, at), (other, other_at)):
        if ids.known is not None:
            found = found & ids.known[places]
    return found


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one trace that are compared, sorted by pair and position. K is the length of a proposal."""

    numbers: Array
    """[rows] number of the step within the trace."""
    keys: Array
    """[rows] pair << 40 | position, ascending."""
    drafted: Array
    """[rows] K."""
    accepted: Array
    """[rows] num_accepted within 0..K."""
    reached: Array
    """[rows] draft tokens that the target judged on the accepted path: accepted, and one more if refused."""
    emitted: Array
    """[rows] tokens committed."""
    marks: Array
    """[rows] bits: TREE, PREFILL, SIMULATED, MALFORMED, CUT (ended inside its accepted tokens), SUMMED."""
    draft_starts: Array
    """[rows] where a row's draft tokens begin in ``proposal``, ``raw`` and ``parents``."""
    token_starts: Array
    """[rows] where a row's committed tokens begin in ``committed`` and ``picks``."""
    proposal: Ids
    raw: Ids
    """Ids in the draft's vocabulary."""
    parents: Ids
    """Parents of the nodes of trees; unknown in a chain."""
    committed: Ids
    picks: Ids
    """The target's own pick where each committed token stands."""
    draft_positions: Ids
    """Positions that the draft was run at, as ``proposal``."""
    fed_back: Ids
    """RMS of the state that the draft read for each token of a chain; the first is the target's."""
    draft_kv: Ids
    """[rows] length of the draft's KV cache."""
    target_kv: Ids
    """[rows] length of the target's."""
    num_unplaced: int
    """Rows left out, their position being no length of a text."""

    @property
    def pairs(self) -> Array:
        """[rows] number of the pair."""
        return self.keys >> POSITION_BITS

    @property
    def positions(self) -> Array:
        """[rows] committed length before the step."""
        return self.keys & ((1 << POSITION_BITS) - 1)


def spans(starts: Array, lengths: Array) -> Array:
    """Indices of ragged pieces, one after the other.

    >>> spans(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    shift = starts - (np.cumsum(lengths) - lengths)
    found: Array = np.repeat(shift, lengths) + np.arange(int(lengths.sum()))
    return found


def read_rows(
    trace: Trace, pair_of: Mapping[int, int], on_progress: Callable[[int], None] | None = None
) -> tuple[Rows, TapTally]:
    """Reads a trace once.

    Args:
        trace: an open trace.
        pair_of: number of a request within the whole trace -> number of its pair.
        on_progress: told how many steps have been read.

    Returns:
        The rows of paired requests, and the fingerprints of the taps of the first requests.
    """
    table = _table(pair_of)
    taps = TapTally(trace.run)
    paths: dict[str, int | None] = dict.fromkeys(TapTally.FIELDS, TapTally.FIRST_STEPS)
    paths.update(dict.fromkeys(COLUMNS))
    pieces: list[dict[str, Array]] = []
    read = num_unplaced = 0
    for block in blocks(trace, paths):
        piece, unplaced = _piece(block, table)
        pieces.append(piece)
        num_unplaced += unplaced
        if "taps.shape" in block.columns:
            taps.add(block)
        read += block.num_rows
        if on_progress is not None:
            on_progress(read)
    return _sorted(pieces, num_unplaced), taps


def _table(pair_of: Mapping[int, int]) -> Array:
    """[requests] number of the pair, -1 of a request without one."""
    table = np.full(max(pair_of, default=0) + 1, -1, np.int64)
    table[list(pair_of)] = list(pair_of.values())
    return table


def _piece(block: Block, table: Array) -> tuple[dict[str, Array], int]:
    """The rows of a block that are compared."""
    requests = block.requests
    pairs = np.where(requests < len(table), table[np.minimum(requests, len(table) - 1)], -1)
    pairs[block.flagged("dummy", "replay")] = -1
    placed = (block.positions >= 0) & (block.positions < (1 << POSITION_BITS) - block.emitted)
    kept = (pairs >= 0) & placed
    rows: dict[str, Array] = {
        "numbers": narrow(block.numbers(np.arange(block.num_rows))),
        "keys": pairs << POSITION_BITS | np.where(placed, block.positions, 0),
        "drafted": narrow(block.drafted),
        "accepted": narrow(block.accepted),
        "reached": narrow(block.accepted + rejected_rows(block.columns, block.num_rows)),
        "emitted": narrow(block.emitted),
        "marks": _marks(block),
    }
    tokens = _ids("proposal", block.tokens("proposal_ids"), block.drafted)
    tokens |= _ids("raw", block.tokens("draft_ids"), block.drafted)
    tokens |= _ids("parents", block.tokens("parents"), block.drafted)
    committed = _ids("committed", block.committed_ids, block.emitted) | _ids(
        "picks", _picks(block), block.emitted
    )
    rows |= _given("draft_kv", block.scalar("draft_kv_length"))
    rows |= _given("target_kv", block.scalar("target_kv_length"))
    tokens |= _given("draft_positions", block.tokens("draft_positions"))
    tokens |= _given("fed_back", block.tokens("draft_inputs.rms"))
    if not kept.all():
        rows = {name: values[kept] for name, values in rows.items()}
        tokens = _of_rows(tokens, np.repeat(kept, block.drafted))
        committed = _of_rows(committed, np.repeat(kept, block.emitted))
    return rows | tokens | committed, int(((pairs >= 0) & ~placed).sum())


def _marks(block: Block) -> Array:
    wrong = (block.raw_accepted < 0) | (block.raw_accepted > block.drafted)
    cut = block.is_cut | block.flagged("truncated")
    marks = np.zeros(block.num_rows, np.uint8)
    for bit, rows in (
        (TREE, block.is_tree),
        (PREFILL, block.is_prefill),
        (SIMULATED, block.flagged("simulated")),
        (MALFORMED, wrong),
        (CUT, cut),
        (SUMMED, block.flagged("summed")),
    ):
        marks[rows] |= bit
    return marks


def _ids(name: str, found: Values | None, lengths: Array) -> dict[str, Array]:
    """Ids of a block as two arrays of one size; the values are empty where none is known."""
    if found is None or not found.known.any():
        return {name: np.zeros(0, np.int32), f"{name}_known": np.zeros(int(lengths.sum()), bool)}
    return {name: narrow(found.values), f"{name}_known": found.known}


def _given(name: str, found: Values | None) -> dict[str, Array]:
    """Values of a block as two arrays; none where the trace has none, which most lack."""
    if found is None or not found.known.any():
        return {}
    is_float = found.values.dtype.kind == "f"
    values = found.values.astype(np.float32) if is_float else narrow(found.values)
    return {name: values, f"{name}_known": found.known & np.isfinite(values)}


def narrow(ids: Array) -> Array:
    """The ids in 32 bits where they fit: a long trace holds many."""
    bounds = np.iinfo(np.int32)
    fits = not len(ids) or (ids.min() >= bounds.min and ids.max() <= bounds.max)
    return ids.astype(np.int32) if fits else ids


def _of_rows(arrays: dict[str, Array], kept: Array) -> dict[str, Array]:
    return {name: values[kept] if len(values) else values for name, values in arrays.items()}


def _picks(block: Block) -> Values | None:
    """[emitted tokens] the target's pick at the place of each; unknown behind its own token."""
    slots = block.slots("target_ids")
    if slots is None:
        return None
    row = np.repeat(np.arange(block.num_rows), block.emitted)
    index = np.arange(len(row)) - np.repeat(np.cumsum(block.emitted) - block.emitted, block.emitted)
    place = index.copy()
    sound = index <= block.accepted[row]
    in_tree = block.is_tree[row] & (index > 0) & sound
    if in_tree.any():
        place[in_tree], known = _nodes(block, row[in_tree], index[in_tree])
        sound[in_tree] &= known
    at = np.where(sound, block.root_slots[row] + place, 0)
    return Values(slots.values[at], slots.known[at] & sound)


def _nodes(block: Block, row: Array, index: Array) -> tuple[Array, Array]:
    """Place behind the accepted node that came before each token, and whether it is known."""
    nodes = block.path_nodes
    if nodes is None:
        return np.zeros(len(row), np.int64), np.zeros(len(row), bool)
    at = (np.cumsum(block.accepted) - block.accepted)[row] + index - 1
    node = nodes.values[at]
    exists = nodes.known[at] & (node >= 0) & (node < block.drafted[row])
    return np.where(exists, node + 1, 0), exists


def _sorted(pieces: Sequence[dict[str, Array]], num_unplaced: int) -> Rows:
    def joined(name: str) -> Array:
        parts = [part for piece in pieces if len(part := piece.pop(name))]
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)

    def ids(name: str) -> Ids:
        filled = any(len(piece[name]) for piece in pieces)
        for piece in pieces:
            if filled and not len(piece[name]):
                piece[name] = np.zeros(len(piece[f"{name}_known"]), np.int32)
        known = joined(f"{name}_known").astype(bool)
        return Ids(joined(name), None if known.all() else known)

    def given(name: str, sizes: Sequence[int]) -> Ids:
        if not any(name in piece for piece in pieces):
            return Ids(np.zeros(0, np.int32), None)
        for piece, size in zip(pieces, sizes):
            piece.setdefault(name, np.zeros(size, np.int32))
            piece.setdefault(f"{name}_known", np.zeros(size, bool))
        known = joined(f"{name}_known").astype(bool)
        return Ids(joined(name), None if known.all() else known)

    def reordered(ids: Ids) -> Ids:
        if ids.is_empty:
            return ids
        return Ids(ids.values[order], None if ids.known is None else ids.known[order])

    num_rows = [len(piece["keys"]) for piece in pieces]
    num_tokens = [len(piece["proposal_known"]) for piece in pieces]
    draft_kv, target_kv = given("draft_kv", num_rows), given("target_kv", num_rows)
    draft_positions, fed_back = given("draft_positions", num_tokens), given("fed_back", num_tokens)
    keys = joined("keys").astype(np.int64)
    is_sorted = not (np.diff(keys) < 0).any()
    order = slice(None) if is_sorted else np.argsort(keys, kind="stable")
    drafted, emitted = joined("drafted"), joined("emitted")
    draft_starts, token_starts = (
        np.cumsum(lengths, dtype=np.int64) - lengths for lengths in (drafted, emitted)
    )
    return Rows(
        numbers=joined("numbers")[order],
        keys=keys[order],
        drafted=drafted[order],
        accepted=joined("accepted")[order],
        reached=joined("reached")[order],
        emitted=emitted[order],
        marks=joined("marks").astype(np.uint8)[order],
        draft_starts=draft_starts[order],
        token_starts=token_starts[order],
        proposal=ids("proposal"),
        raw=ids("raw"),
        parents=ids("parents"),
        committed=ids("committed"),
        picks=ids("picks"),
        draft_positions=draft_positions,
        fed_back=fed_back,
        draft_kv=reordered(draft_kv),
        target_kv=reordered(target_kv),
        num_unplaced=num_unplaced,
    )
