"""One trace file, read by its index: requests, counts, and chunks of steps decoded when asked for.

An index is a hint: what it says is held against the frames, and when it is damaged it is made again from
them. `reader.py` makes a `Trace` of one or several of these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from spectrace.format.chunk import Chunk
from spectrace.format.counts import (
    REJECTED_COLUMNS,
    Counts,
    count_steps,
    rejected_rows,
)
from spectrace.format.frames import (
    END,
    INDEX,
    REQUEST,
    REQUEST_DETAIL,
    STEP,
    TAIL,
    WHOLE_INDEX,
    BadBody,
    Frame,
)
from spectrace.format.index import (
    Groups,
    IndexBody,
    IndexBuilder,
    groups_of,
    join_groups,
)
from spectrace.format.openfile import OpenFile, ascend, claimed_rows
from spectrace.format.scan import read_frame

_COUNTED = (9, 10, 26, 27, 28, 29, 30, 31, 51, 52, 53, 55)
"""Numbers of the columns that counts are made of."""


class TraceFile(OpenFile):
    """One trace file, with its index: records, requests and steps wherever they lie."""

    def records(self, kind: bytes) -> Iterator[dict[str, Any]]:
        """Bodies of every frame of one kind, in file order."""
        return self._bodies(self.offsets(kind), kind)

    def offsets(self, kind: bytes) -> Sequence[int]:
        """Offsets of every frame of one kind."""
        self._load_index()
        name = kind.decode("ascii")
        return [*self._others.get(name, ()), *self._tail_others.get(name, ())]

    # --- requests ---

    def request_offsets(self) -> list[int]:
        """Offset of the frame that declares each request, by number."""
        self._load_index()
        kind = REQUEST.decode()
        indexed, behind = self._others.get(kind, []), self._tail_others.get(kind, [])
        if len(self._declared) != len(indexed) + len(behind):
            self._declared = [*indexed, *behind]
        return self._declared

    def request(self, number: int) -> dict[str, Any] | None:
        """The record of one request; None when it is damaged or not declared."""
        offsets = self.request_offsets()
        if self._by_number is None and 0 <= number < len(offsets):
            frame = self._frame_at(offsets[number], REQUEST)
            found = None if frame is None else self.body(frame)
            if found is not None and found.get("number") == number:
                return found
        if self._by_number is None or self._num_declared != len(offsets):
            # A damaged frame shifts the ones behind it: go by the numbers in the records.
            self._num_declared = len(offsets)
            self._by_number = {
                n: body for body in self.records(REQUEST) if type(n := body.get("number")) is int
            }
        return self._by_number.get(number)

    def details(self) -> dict[int, dict[str, Any]]:
        """Number -> what was said of a request after it was declared."""
        found: dict[int, dict[str, Any]] = {}
        for body in self.records(REQUEST_DETAIL):
            number = body.get("number")
            if type(number) is int:
                found[number] = {**found.get(number, {}), **body}
        return found

    def request_name(self, number: int | None) -> str:
        """Name of a request, for a step."""
        if number is None:
            return "?"
        name = self._names.get(number)
        if name is None:
            body = self.request(number)
            given = None if body is None else body.get("request")
            if not isinstance(given, str):
                self.complain("some steps belong to requests whose names are lost; they are shown as ?NUMBER")
                given = f"?{number}"
            name = self._names[number] = given
        return name

    # --- index ---

    def _load_index(self) -> None:
        """Reads the index, on the first question that needs it."""
        if self._groups is not None:
            return
        bodies = self._whole_index() if self._index_frames else self._chained_index()
        parts = [body.groups for body in bodies]
        self._others = {}
        for body in bodies:
            for kind, offsets in body.others.items():
                self._others.setdefault(kind, []).extend(offsets)
        groups = join_groups(parts) if parts else groups_of([])
        self._groups = groups if self._is_sound(groups) else self._rebuilt_index()
        for kind in self._others:
            self._need_known(kind)

    def _whole_index(self) -> list[IndexBody]:
        ends = [*self._index_frames[1:], self.size]
        frames = [read_frame(self.fd, at, end) for at, end in zip(self._index_frames, ends, strict=True)]
        bodies = [self._index_body(f) for f in frames if f is not None and f.kind == WHOLE_INDEX]
        return [body for body in bodies if body is not None]

    def _chained_index(self) -> list[IndexBody]:
        bodies: list[IndexBody] = []
        at: int | None = self._chain_start
        end = self.size
        while at is not None:
            frame = read_frame(self.fd, at, end)
            body = self._index_body(frame) if frame is not None and frame.kind == INDEX else None
            if body is None:
                break
            bodies.append(body)
            # The frame before must end before this one begins, so that a chain cannot go round.
            end = at
            at = body.previous
        return bodies[::-1]

    def _is_sound(self, groups: Groups) -> bool:
        """Whether the groups cover the indexed rows, and all offsets ascend within the file."""
        row, rows = groups.row.astype("i8"), groups.rows.astype("i8")
        starts = np.concatenate([[0], np.cumsum(rows)])
        return (
            np.array_equal(row, starts[:-1])
            and int(starts[-1]) == self._indexed_rows
            and ascend(groups.offset, self.size)
            and all(ascend(offsets, self.size) for offsets in self._others.values())
        )

    def _rebuilt_index(self) -> Groups:
        """The index made from the frames themselves, when the one in the file is damaged."""
        self.complain("the index is damaged; it was made again from the steps")
        builder = IndexBuilder()
        next_row = 0
        for frame in self.frames():
            if frame.kind == STEP:
                chunk = self._chunk_behind(frame, next_row)
                if chunk is not None:
                    next_row = chunk.first_row + chunk.num_rows
                    counts = count_steps(chunk.columns(*_COUNTED), chunk.num_rows)
                    builder.add_steps(frame.offset, frame.end, frame.first_row, counts)
            elif frame.kind not in (INDEX, WHOLE_INDEX, TAIL, END):
                builder.add_other(frame.kind, frame.offset)
        self._indexed = builder.totals
        groups, self._others = builder.take()
        self._tail_others = {}
        self._tail, self._tail_counts, self._indexed_rows = [], None, self.num_rows
        return groups

    @property
    def groups(self) -> Groups:
        """Every group of steps, those behind the last `indx` frame included."""
        self._load_index()
        assert self._groups is not None
        if not self._tail:
            return self._groups
        self._count_tail()
        return join_groups([self._groups, self._tail_groups])

    @property
    def counts(self) -> Counts:
        """Tallies of every step of the file."""
        total = Counts()
        total.add(self._indexed)
        if self._tail:
            total.add(self._count_tail())
        return total

    def _count_tail(self) -> Counts:
        if self._tail_counts is None:
            builder = IndexBuilder()
            for offset, end, first_row, _ in self._tail:
                frame = read_frame(self.fd, offset, self.size)
                chunk = None if frame is None else self.chunk(frame)
                if chunk is not None:
                    counts = count_steps(chunk.columns(*_COUNTED), chunk.num_rows)
                    builder.add_steps(offset, end, first_row, counts)
            self._tail_counts = builder.totals
            self._tail_groups, _ = builder.take()
        return self._tail_counts

    # --- steps ---

    def chunk(self, frame: Frame) -> Chunk | None:
        """A STEP frame's steps; None when its outline is damaged."""
        try:
            return Chunk(self, frame)
        except BadBody as error:
            self.complain(f"STEP frame at byte {frame.offset:,}: {error}; its steps are not shown")
            return None

    def chunks(self, start_row: int = 0) -> Iterator[Chunk]:
        """Every whole chunk from the one that holds a row on, in file order."""
        start = self._offset_of(start_row) if start_row else self._head_end
        next_row = 0
        for frame in self._scan(start, self._data_end):
            if frame.kind == STEP:
                chunk = self._chunk_behind(frame, next_row)
                if chunk is not None:
                    next_row = chunk.first_row + chunk.num_rows
                    if next_row > start_row:
                        yield chunk

    def _chunk_behind(self, frame: Frame, next_row: int) -> Chunk | None:
        """The steps of a frame that was counted: one that claims none, or is out of order, is not shown."""
        return self.chunk(frame) if claimed_rows(frame) and self.is_behind(frame, next_row) else None

    def chunk_at(self, row: int) -> Chunk | None:
        """The chunk that holds a row; None when the row is damaged."""
        if row in self._missing:
            return None
        frame = self._find_in_tail(row) if row >= self._indexed_rows else self._find_in_index(row)
        chunk = None if frame is None else self.chunk(frame)
        if chunk is None or not chunk.first_row <= row < chunk.first_row + chunk.num_rows:
            return None
        return chunk

    def next_row(self, row: int) -> int:
        """The row behind a damaged one, or behind all the damaged ones around it where they are known."""
        return max(row + 1, self._missing.stop if row in self._missing else 0)

    def _find_in_tail(self, row: int) -> Frame | None:
        at = bisect_right(self._tail, row, key=lambda entry: entry[2])
        behind = self._tail[at - 1][2] + self._tail[at - 1][3] if at else self._indexed_rows
        if at and row < behind:
            return read_frame(self.fd, self._tail[at - 1][0], self.size)
        self._missing = range(behind, self._tail[at][2] if at < len(self._tail) else self.num_rows)
        return None

    def _find_in_index(self, row: int) -> Frame | None:
        """The STEP frame that holds a row, as far as headers tell."""
        self._load_index()
        assert self._groups is not None
        groups = self._groups
        at = int(groups.row.searchsorted(row, "right"))
        is_last = at == len(groups)
        behind = 0 if at == 0 else int(groups.row[at - 1])
        start = self._head_end if at == 0 else int(groups.offset[at - 1])
        if row == self._behind[0]:
            # Steps are mostly asked for one after the other.
            behind, start = self._behind
        for frame in self._scan(start, self._data_end if is_last else int(groups.offset[at]), 64 << 10):
            if frame.kind != STEP:
                continue
            if frame.first_row > row:
                self._missing = range(behind, frame.first_row)
                return None
            behind = frame.first_row + claimed_rows(frame)
            if behind > row:
                self._behind = behind, frame.end
                return frame
        self._missing = range(behind, self._indexed_rows if is_last else int(groups.row[at]))
        return None

    def _offset_of(self, row: int) -> int:
        """Offset from where a row is found by scanning on."""
        self._load_index()
        assert self._groups is not None
        at = int(self._groups.row.searchsorted(row, "right"))
        return self._head_end if at == 0 else int(self._groups.offset[at - 1])

    def rejected_in(self, chunk: Chunk) -> list[int]:
        """Rows within the file in which the target refused a token, ascending."""
        columns = chunk.columns(*REJECTED_COLUMNS)
        found = rejected_rows(columns, chunk.num_rows).nonzero()[0] + chunk.first_row
        return [int(row) for row in found]
