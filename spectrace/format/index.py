"""The sparse index: where groups of steps lie and what they count.

One group is about 64 KiB of STEP frames. A writer chains `indx` frames while it records and writes the
whole index at the end; a reader uses whichever is there and builds the rest from the frames. An index
is a hint: frames are checked again when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spectrace.format.columns import Array
from spectrace.format.counts import Counts, counts_from_mapping
from spectrace.format.frames import BadBody, pack_body, unpack_body

GROUP_BYTES = 64 << 10
"""STEP frames of about this many bytes share an entry."""
CHAIN_BYTES = 1 << 20
"""An `indx` frame is written after about this many bytes."""
GROUPS_PER_FRAME = 65_536
"""Groups in one frame of the whole index."""

_COLUMNS = {
    "offset": "<u8",
    "row": "<u8",
    "rows": "<u4",
    "proposals": "<u4",
    "drafted": "<u4",
    "accepted": "<u4",
    "rejected": "<u4",
}


@dataclass(slots=True)
class Groups:
    """Entries of the index, one per group of steps, as parallel arrays."""

    offset: Array
    """Byte offset of the group's first STEP frame."""
    row: Array
    """Number of the group's first step within the file."""
    rows: Array
    """Steps in the group."""
    proposals: Array
    drafted: Array
    accepted: Array
    rejected: Array

    def __len__(self) -> int:
        return len(self.row)


def groups_of(entries: Sequence[tuple[int, ...]]) -> Groups:
    """Groups from tuples in the order of the fields of `Groups`."""
    columns = list(zip(*entries)) if entries else [()] * len(_COLUMNS)
    return Groups(*(np.array(c, d) for c, d in zip(columns, _COLUMNS.values())))


def join_groups(parts: Sequence[Groups]) -> Groups:
    """Groups one after the other."""
    return Groups(*(np.concatenate([getattr(p, name) for p in parts]) for name in _COLUMNS))


@dataclass(slots=True)
class IndexBuilder:
    """Collects what a file's frames say, in file order.

    Used by the writer and, for the part of a file that no index covers, by the reader.
    """

    entries: list[tuple[int, ...]] = field(default_factory=list)
    """Groups closed since the last `take`."""
    others: dict[str, list[int]] = field(default_factory=dict)
    """Kind -> offsets of frames other than STEP, since the last `take`."""
    totals: Counts = field(default_factory=Counts)
    """Everything so far."""
    _group: Counts = field(default_factory=Counts)
    _start: tuple[int, int] | None = None

    def add_steps(self, offset: int, end: int, row: int, counts: Counts) -> None:
        """Notes one STEP frame."""
        self.totals.add(counts)
        if self._start is None:
            self._start = (offset, row)
        self._group.add(counts)
        if end - self._start[0] >= GROUP_BYTES:
            self.close_group()

    def add_other(self, kind: bytes, offset: int) -> None:
        """Notes a frame of another kind."""
        self.others.setdefault(kind.decode("ascii", "replace"), []).append(offset)

    def close_group(self) -> None:
        """Ends the current group, if it has a step."""
        if self._start is None:
            return
        c = self._group
        self.entries.append((*self._start, c.steps, c.proposals, c.drafted, c.accepted, c.rejected))
        self._group, self._start = Counts(), None

    def take(self) -> tuple[Groups, dict[str, list[int]]]:
        """Groups and other frames since the last call."""
        self.close_group()
        taken = groups_of(self.entries), self.others
        self.entries, self.others = [], {}
        return taken


# --- bodies ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexBody:
    """Body of an `indx` or `idxw` frame."""

    groups: Groups
    others: dict[str, list[int]]
    previous: int | None = None
    """Offset of the `indx` frame before this one."""
    rows: int = 0
    """Steps before this frame."""
    totals: Counts = field(default_factory=Counts)
    """Of all steps before this frame."""
    amends: list[int] = field(default_factory=list)
    """Offsets of every `amnd` frame before this one."""


def pack_index(body: IndexBody) -> bytes:
    """Body bytes."""
    groups = {n: getattr(body.groups, n).astype(d).tobytes() for n, d in _COLUMNS.items()}
    others = {kind: np.array(offsets, "<u8").tobytes() for kind, offsets in body.others.items()}
    return pack_body(
        {
            "prev": body.previous,
            "rows": body.rows,
            "groups": groups,
            "others": others,
            "totals": body.totals.to_mapping(),
            "amends": body.amends,
        }
    )


def unpack_index(raw: Any) -> IndexBody:
    """The reverse of `pack_index`.

    Raises:
        BadBody: not such a body.
    """
    body = unpack_body(raw)
    if type(body) is not dict:
        raise BadBody("an index is a map")
    groups, others = body.get("groups"), body.get("others")
    if type(groups) is not dict or type(others) is not dict:
        raise BadBody("an index has groups and others")
    columns = [_offsets(groups.get(name), dtype) for name, dtype in _COLUMNS.items()]
    if len({len(column) for column in columns}) > 1:
        raise BadBody("an index has columns of equal length")
    previous, amends = body.get("prev"), body.get("amends", [])
    if type(amends) is not list or not all(type(offset) is int for offset in amends):
        raise BadBody("amends are offsets")
    return IndexBody(
        Groups(*columns),
        {kind: _offsets(value, "<u8").tolist() for kind, value in others.items()},
        previous if type(previous) is int else None,
        body["rows"] if type(body.get("rows")) is int else 0,
        counts_from_mapping(body.get("totals")),
        amends,
    )


def _offsets(raw: Any, dtype: str) -> Array:
    if type(raw) is not bytes or len(raw) % int(dtype[2]):
        raise BadBody(f"a column of the index is not {dtype} items")
    return np.frombuffer(raw, dtype)


def split_index(groups: Groups, others: dict[str, list[int]]) -> Iterator[IndexBody]:
    """The whole index in bodies of bounded size."""
    limit = GROUPS_PER_FRAME
    flat = [(kind, offset) for kind, offsets in others.items() for offset in offsets]
    for at in range(0, max(len(groups), len(flat), 1), limit):
        part = Groups(*(getattr(groups, name)[at : at + limit] for name in _COLUMNS))
        kinds: dict[str, list[int]] = {}
        for kind, offset in flat[at : at + limit]:
            kinds.setdefault(kind, []).append(offset)
        yield IndexBody(part, kinds)
