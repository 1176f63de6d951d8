"""Repair: whatever is whole in a damaged file, written to a new one; and compaction.

Never touches the source. Compaction regroups steps and compresses their columns; it is how a trace is
*packed*.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectrace.errors import RecorderError
from spectrace.format.chunk import Chunk
from spectrace.format.columns import Columns, FieldFault, concatenate
from spectrace.format.fields import LEAVES, REQUIRED
from spectrace.format.frames import AMEND, GAP, HEAD, REFERENCE, REQUEST, REQUEST_DETAIL, STEP, TOKENS
from spectrace.format.items import Item
from spectrace.format.packer import Packer
from spectrace.format.records import SCHEMA
from spectrace.format.tracefile import TraceFile

ROWS_PER_FRAME = 1024
"""Steps in one compacted frame; fewer when they are large."""
BYTES_PER_FRAME = 1 << 20
"""Bytes of live frames that are regrouped into one."""
TEXTS_PER_FRAME = 16_384
"""Token texts that a compacted trace keeps together."""
_COPIED = {
    AMEND: "amend",
    GAP: "gap",
    REFERENCE: "reference",
    REQUEST: "request",
    REQUEST_DETAIL: "request",
    TOKENS: "tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What a repair found and kept."""

    steps: int
    """Steps written."""
    lost: int
    """Steps known to be missing: numbered in the source, and not whole there."""
    skipped_bytes: int
    """Bytes of the source that are no whole frame."""
    is_cut: bool
    """The source has no end: steps behind its last whole frame are not counted in `lost`."""
    problems: tuple[str, ...]
    """What was wrong, one sentence each."""

    @property
    def is_clean(self) -> bool:
        """Nothing was wrong."""
        return not (self.lost or self.skipped_bytes or self.problems)


def repair(
    source: Path,
    out: Path,
    *,
    compact: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> RepairReport:
    """Writes what is whole in ``source`` to ``out``.

    Args:
        source: a trace, damaged or not; even its header may be.
        out: file to create.
        compact: regroup the steps and compress them.
        on_progress: told the number of bytes read so far.

    Raises:
        TraceError: the source cannot be read or holds no frame at all.
        RecorderError: ``out`` exists or cannot be written.
    """
    if out.exists():
        raise RecorderError(f"{out}: exists already; give another name or remove it")
    partial = out.with_name(f".{out.name}.{os.getpid()}.part")
    file = TraceFile(source, salvage=True)
    try:
        job = _Repair(file, partial, compact)
        try:
            report = job.run(on_progress)
            partial.rename(out)
        except BaseException:
            job.packer.abandon()
            raise
    finally:
        file.close()
    return report


class _Repair:
    """One repair under way."""

    def __init__(self, file: TraceFile, partial: Path, compact: bool) -> None:
        self.file = file
        self.lost = self.skipped = self.written = 0
        self.compact = compact
        run = {"schema": SCHEMA, **file.run_unamended}
        self.packer = Packer(partial, run, file.complain, compress=compact)
        self._waiting: list[tuple[int, Columns]] = []
        self._waiting_bytes = 0
        self._texts: dict[str, dict[str, str]] = {}
        self._next_row = 0

    def run(self, on_progress: Callable[[int], None] | None) -> RepairReport:
        """Reads the source to its end."""
        for at, frame in enumerate(self.file.frames_with_holes(self._skip)):
            if on_progress is not None and at % 256 == 0:
                on_progress(frame.end)
            if frame.kind == STEP:
                chunk = self.file.chunk(frame) if self.file.is_behind(frame, self._next_row) else None
                if chunk is not None:
                    self._add(chunk, frame.end - frame.offset)
            elif frame.kind in _COPIED:
                self._copy(_COPIED[frame.kind], self.file.body(frame))
            elif frame.kind == HEAD or frame.kind[:1].isupper():
                self.file.complain(f"a frame at byte {frame.offset:,} is not known and was left out")
        self._note_missing(self.file.num_rows)
        self._flush()
        self._flush_texts()
        self.packer.lose(self.file.lost_at_close, "disk full")
        self._close()
        if self.packer.disk_fault is not None:
            raise RecorderError(self.packer.disk_fault)
        return RepairReport(
            steps=self.written,
            lost=self.lost,
            skipped_bytes=self.skipped,
            is_cut=self.skipped > 0 and not self.file.is_complete,
            problems=tuple(self.file.problems),
        )

    def _close(self) -> None:
        if self.file.end is not None and not self.lost:
            self.packer.close(self.file.end)
        else:
            self.packer.close_without_end()

    def _skip(self, start: int, end: int) -> None:
        self.skipped += end - start

    def _add(self, chunk: Chunk, size: int) -> None:
        self._note_missing(chunk.first_row)
        self._next_row = chunk.first_row + chunk.num_rows
        columns = chunk.columns(*(leaf.number for leaf in LEAVES))
        if not all(name in columns for name in REQUIRED):
            self._lose(chunk.num_rows)
            return
        self._waiting.append((chunk.num_rows, columns))
        self._waiting_bytes += max(size, chunk.body.num_elements)
        rows = sum(rows for rows, _ in self._waiting)
        if not self.compact or rows >= ROWS_PER_FRAME or self._waiting_bytes >= BYTES_PER_FRAME:
            self._flush()

    def _note_missing(self, first_row: int) -> None:
        if first_row > self._next_row:
            self._lose(first_row - self._next_row)

    def _lose(self, num_rows: int) -> None:
        self._flush()
        self.lost += num_rows
        self.packer.lose(num_rows, "damaged")

    def _flush(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        rows = sum(rows for rows, _ in waiting)
        try:
            self.packer.add_columns(rows, concatenate(waiting), self.file.request_name)
        except FieldFault as fault:
            self.file.complain(f"{rows:,} steps cannot be kept: {fault}")
            self._lose(rows)
            return
        self.written += rows

    def _copy(self, kind: str, body: dict[str, Any] | None) -> None:
        if body is None:
            return
        body.pop("number", None)
        if kind == "request" and (body.pop("implied", False) or not isinstance(body.get("request"), str)):
            return
        if not self.compact:
            self.packer.write([Item(kind, body)])
        elif kind == "tokens":
            self._gather_texts(body)
        else:
            # Only a gap has its place among the steps; for the others no group of steps is broken up.
            if kind == "gap":
                self._flush()
            self.packer.write([Item(kind, body)])

    def _gather_texts(self, body: dict[str, Any]) -> None:
        """Joins token texts, which a recorder writes by the handful, in frames of many."""
        for space, table in body.items():
            if space in ("target", "draft") and isinstance(table, dict):
                found = {
                    key: text for key, text in table.items() if key.isdecimal() and isinstance(text, str)
                }
                self._texts.setdefault(space, {}).update(found)
        if sum(map(len, self._texts.values())) >= TEXTS_PER_FRAME:
            self._flush_texts()

    def _flush_texts(self) -> None:
        if self._texts:
            self.packer.write([Item("tokens", self._texts)])
            self._texts = {}
