"""The file a trace is appended to: whole frames or nothing, the index, and a disk that may be full.

Owns the file descriptor and the offsets. A write that fails is cut back to the last whole frame; the
steps in it are counted and declared in a `gap_` frame once there is room.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spectrace.errors import RecorderError
from spectrace.format.counts import Counts
from spectrace.format.frames import (
    AMEND,
    END,
    GAP,
    HEAD,
    INDEX,
    REFERENCE,
    STEP,
    TAIL,
    WHOLE_INDEX,
    pack_body,
    pack_frame,
)
from spectrace.format.index import (
    CHAIN_BYTES,
    Groups,
    IndexBody,
    IndexBuilder,
    groups_of,
    join_groups,
    pack_index,
    split_index,
)

try:
    import fcntl
except ImportError:  # not on Windows: a live writer cannot be told from a dead one there
    fcntl = None  # type: ignore[assignment]

RETRY_SECONDS = 0.25
"""Pause after a failed write."""
OWED_LIMIT = 100_000
"""Most frames without steps that are kept in memory while the disk is full."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A frame not yet in the file."""

    kind: bytes
    body: bytes
    num_rows: int = 0
    counts: Counts = field(default_factory=Counts)
    lost: int = 0
    """Steps that this frame declares as lost."""


def gap(lost: int, reason: str) -> Pending:
    """The frame that declares lost steps."""
    return Pending(GAP, pack_body({"lost": lost, "reason": reason}), lost=lost)


class OutFile:
    """Appends frames to a new file.

    Args:
        path: file to create.
        fault: told once when the disk refuses.

    Raises:
        RecorderError: the file exists or cannot be created.
    """

    def __init__(self, path: Path, fault: Callable[[str], None]) -> None:
        self.path = path
        self.size = 0
        self.rows = 0
        self.totals = Counts()
        self._fault = fault
        self._fd = _create(path)
        self._lost = 0
        self._owed: list[Pending] = []
        self._retry_at = 0.0
        self._older_steps = 0
        self._header = b""
        self._reset()

    def _reset(self) -> None:
        self.size = self.rows = self._declared = 0
        self.totals = Counts()
        self._index = IndexBuilder()
        self._groups: list[Groups] = []
        self._others: dict[str, list[int]] = {}
        self._unchained: dict[str, list[int]] = {}
        self._chained = 0
        self._amends: list[int] = []
        self._chain: int | None = None
        self._chained_at = 0
        self._last_steps = 0, 0
        self._is_cut = False

    # --- appending ---

    def write(self, pending: Sequence[Pending]) -> None:
        """Appends frames; steps that cannot be written are counted as lost, other frames are owed."""
        if time.monotonic() < self._retry_at:
            self._lose(pending)
            return
        frames = [*self._owed, *self._gap(), *pending]
        if not frames:
            return
        frames.sort(key=lambda frame: frame.kind != HEAD)  # the header is first, whatever else is owed
        self._look()
        if not self._append(frames):
            self._lose(pending)
            return
        self._owed, self._lost = [], 0
        if self.size - self._chained_at >= CHAIN_BYTES and not self._is_cut:
            self._write_chain()

    def _look(self) -> None:
        """Notices what others have done to the file since the last write."""
        with suppress(OSError):
            found = os.fstat(self._fd)
            if not stat.S_ISREG(found.st_mode):
                return
            if not found.st_nlink:
                self._fault("was removed or replaced while it is recorded; nothing of it will be left")
            if found.st_size < self.size:
                self._fault(
                    f"was cut to {found.st_size:,} bytes while it is recorded; the steps behind are lost"
                )
                # No index: it would count what is gone. Without one the reader walks and tells.
                self._is_cut = True
                if found.st_size < len(self._header):
                    _write_all(self._fd, self._header, 0)

    def idle(self) -> None:
        """Declares what was lost, when there is room again."""
        if (self._lost or self._owed) and time.monotonic() >= self._retry_at:
            self.write([])

    def _gap(self) -> list[Pending]:
        return [gap(self._lost, "disk full")] if self._lost else []

    def _lose(self, pending: Sequence[Pending]) -> None:
        self._lost += sum(frame.num_rows for frame in pending)
        room = OWED_LIMIT - len(self._owed)
        self._owed += [frame for frame in pending if not frame.num_rows][:room]

    def _append(self, pending: Sequence[Pending]) -> bool:
        """Writes frames at the end; True when all are in the file."""
        row, parts = self.rows, []
        for frame in pending:
            parts.append(pack_frame(frame.kind, row, frame.body))
            row += frame.num_rows
        if not self._write_whole(b"".join(parts)):
            return False
        for frame, raw in zip(pending, parts):
            if frame.kind == HEAD:
                self._header = raw
            self._note(frame, len(raw))
        return True

    def _write_whole(self, data: bytes) -> bool:
        try:
            _write_all(self._fd, data, self.size)
        except OSError as error:
            self._cut_back(error)
            return False
        return True

    def _cut_back(self, error: OSError) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._fault(f"{error.strerror or error}; recording goes on, steps are lost while it lasts")
        # Where this fails too, the next write goes to the same offset and overwrites the torn bytes.
        with suppress(OSError):
            os.ftruncate(self._fd, self.size)

    def _note(self, frame: Pending, size: int) -> None:
        start, self.size = self.size, self.size + size
        self._declared += frame.lost
        if frame.kind == STEP:
            self._last_steps = start, frame.num_rows
            self._index.add_steps(start, self.size, self.rows, frame.counts)
            self.totals.add(frame.counts)
            self.rows += frame.num_rows
        elif frame.kind not in (INDEX, WHOLE_INDEX):
            self._index.add_other(frame.kind, start)
            if frame.kind == AMEND:
                self._amends.append(start)

    # --- index ---

    def _write_chain(self) -> None:
        self._take_index()
        groups = join_groups(self._groups[self._chained :])
        body = IndexBody(groups, self._unchained, self._chain, self.rows, self.totals, self._amends)
        at = self.size
        if self._append([Pending(INDEX, pack_index(body))]):
            self._chain, self._chained, self._unchained = at, len(self._groups), {}
        self._chained_at = self.size

    def _take_index(self) -> None:
        groups, others = self._index.take()
        self._groups.append(groups)
        for kind, offsets in others.items():
            self._others.setdefault(kind, []).extend(offsets)
            self._unchained.setdefault(kind, []).extend(offsets)

    def finish(self, end: Mapping[str, Any] | None) -> None:
        """Writes the index and the tail and closes the file."""
        self._retry_at = 0.0
        self.write([])
        self._look()
        if self._is_cut:
            self._close()
            return
        self._take_index()
        if self._write_tail(end):
            self._declared += self._lost
            self._lost = 0
        elif self._lost and (self._append(self._gap()) or self._give_up_last_steps()):
            self._lost = 0
        self._close()

    def _give_up_last_steps(self) -> bool:
        """Cuts off the last steps, to have room for saying how many are lost."""
        offset, rows = self._last_steps
        if not rows:
            return False
        self._lost += rows
        self.size, self.rows = offset, self.rows - rows
        with suppress(OSError):
            os.ftruncate(self._fd, offset)
        return self._append(self._gap())

    def _write_tail(self, end: Mapping[str, Any] | None) -> bool:
        groups = join_groups(self._groups) if self._groups else groups_of([])
        offsets = []
        for body in split_index(groups, self._others):
            offsets.append(self.size)
            if not self._append([Pending(WHOLE_INDEX, pack_index(body))]):
                return False
        tail = {
            "end": None if end is None else dict(end),
            "rows": self.rows,
            "index": offsets,
            "totals": self.totals.to_mapping(),
            "amends": self._amends,
            "lost": self._lost,
        }
        at = self.size
        if not self._append([Pending(TAIL, pack_body(tail))]):
            return False
        return self._write_whole(pack_frame(END, at, b""))

    def rotate(self, lost_before: int) -> int:
        """Ends this segment, keeps it as ``path.1`` and starts a new one.

        Args:
            lost_before: steps that earlier rotations dropped.

        Returns:
            Steps that rotations have dropped so far, the segment that is overwritten now included.
        """
        dropped = lost_before + self._older_steps
        self.finish(None)
        self._older_steps = self.rows + self._declared
        # Numbers of requests and texts of tokens are given anew in the next segment.
        self._owed = [frame for frame in self._owed if frame.kind in (GAP, REFERENCE)]
        self._reset()
        try:
            self.path.replace(older_segment(self.path))
            self._fd = _create(self.path)
        except (OSError, RecorderError) as error:
            self._fault(f"the next segment cannot be begun, steps are lost from here on: {error}")
        return dropped

    def abandon(self) -> None:
        """Closes and removes the file."""
        self._close()
        self.path.unlink(missing_ok=True)

    def detach(self) -> None:
        """Lets go of the file without touching it: it belongs to the process that forked this one."""
        fd, self._fd = self._fd, -1
        with suppress(OSError):
            os.close(fd)

    def _close(self) -> None:
        if self._fd < 0:
            return
        # A number that is closed may be given to another file: never write to it again.
        fd, self._fd = self._fd, -1
        try:
            _sync(fd)
            os.close(fd)
        except OSError as error:
            self._fault(f"{error.strerror or error} while closing")


_sync = getattr(os, "fdatasync", os.fsync)


def older_segment(path: Path) -> Path:
    """Where a flight recorder keeps the steps before the newest segment."""
    return path.with_name(path.name + ".1")


def _create(path: Path) -> int:
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
    try:
        fd = os.open(path, flags, 0o600)
    except FileExistsError:
        raise RecorderError(f"{path}: exists already; give another name or remove it") from None
    except OSError as error:
        raise RecorderError(f"{path}: cannot be created: {error.strerror}") from None
    if fcntl is not None:
        # Some network file systems have no locks; a reader then cannot tell that we live.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def _write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
