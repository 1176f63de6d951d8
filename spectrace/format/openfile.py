"""One trace file, opened and followed: header, tail or last index, whole frames in order.

Opening reads the header and the tail, never the whole file; a file without a tail (killed, cut, or still
being written) is opened by its last `indx` frame. One in a zip or gzip file is unpacked first (packaged.py).
Never writes. `tracefile.py` finds steps in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from spectrace.errors import CorruptRecord, NotATrace, TraceError, TruncatedTrace, UnsupportedVersion
from spectrace.format.columns import Array
from spectrace.format.counts import (
    Counts,
    counts_from_mapping,
)
from spectrace.format.frames import (
    AMEND,
    END,
    HEAD,
    HEADER_SIZE,
    INDEX,
    MAX_BODY,
    STEP,
    TAIL,
    VERSION,
    WHOLE_INDEX,
    BadBody,
    Frame,
    ResyncEffort,
    parse_header,
    rfind_frame,
    unpack_record,
)
from spectrace.format.headers import deep_merge
from spectrace.format.index import (
    CHAIN_BYTES,
    Groups,
    IndexBody,
    unpack_index,
)
from spectrace.format.packaged import unpacked
from spectrace.format.records import SCHEMA
from spectrace.format.scan import BLOCK, Hole, read_frame, scan_frames
from spectrace.format.text import visible
from spectrace.format.wire import MAX_ROWS

try:
    import fcntl
except ImportError:  # not on Windows: state is then told by the tail alone
    fcntl = None  # type: ignore[assignment]

_TAIL_WINDOW = 16 << 20
"""Bytes searched backwards for an `indx` frame when there is no tail."""
MAX_PROBLEMS = 100
"""Most kinds of damage that are told."""


class OpenFile:
    """A trace file that is open: its header, and its frames in the order in which they lie.

    Args:
        path: the file.
        salvage: go on with an empty header when it cannot be read.

    Raises:
        TraceError: it is no trace, or its header cannot be read.
    """

    def __init__(self, path: Path, *, salvage: bool = False) -> None:
        self.path = path
        self._salvage = salvage
        self.problems: list[str] = []
        self.end: dict[str, Any] | None = None
        self.is_complete = False
        """The file ends with a tail."""
        self.lost_at_close = 0
        try:
            # Opening a pipe would wait for its writer.
            self.fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            raise TraceError(path, f"cannot be read: {error.strerror}") from None
        try:
            self._open()
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        """Closes the file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def complain(self, sentence: str) -> None:
        """Notes damage, once."""
        if len(self.problems) >= MAX_PROBLEMS:
            return
        shown = visible(sentence, limit=300)
        if shown not in self.problems:
            self.problems.append(shown)

    # --- opening ---

    def _open(self) -> None:
        status = os.fstat(self.fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotATrace(self.path, "not a regular file; import reads JSON lines from a pipe")
        self.identity = status.st_dev, status.st_ino
        self._unpack()
        self.size = os.fstat(self.fd).st_size
        head = self._salvaged_head() if self._salvage else self._read_head()
        self.run_id: bytes = head["run_id"] if isinstance(head.get("run_id"), bytes) else b""
        self.segment = head["segment"] if isinstance(head.get("segment"), int) else 0
        self._run: dict[str, Any] = head["run"]
        self._groups: Groups | None = None
        self._others: dict[str, list[int]] = {}
        self._chain_start: int | None = None
        self._index_frames: list[int] = []
        self._indexed = Counts()
        self._amends: list[int] = []
        self._data_end = self._head_end
        self._indexed_rows = 0
        self._tail: list[tuple[int, int, int, int]] = []
        self._tail_counts: Counts | None = None
        self._tail_others: dict[str, list[int]] = {}
        self._tail_body: dict[str, Any] | None = None
        self._effort, self._trust = ResyncEffort(), ResyncEffort()
        self._missing = range(0)
        self._behind = -1, 0
        self._by_number: dict[int, dict[str, Any]] | None = None
        self._num_declared = 0
        self._names: dict[int, str] = {}
        self._declared: list[int] = []
        self.num_rows = 0
        if not self._open_by_tail():
            self._open_by_chain()
            self.refresh()

    def _unpack(self) -> None:
        """Goes on with the trace inside, where the file is a zip or gzip file."""
        found = unpacked(self.path, self.fd)
        if found is not None:
            os.close(self.fd)
            self.fd, problem = found
            if problem is not None:
                self.complain(problem)

    def _salvaged_head(self) -> dict[str, Any]:
        try:
            return self._read_head()
        except UnsupportedVersion:
            raise
        except TraceError as error:
            if next(scan_frames(self.fd, 0, self.size), None) is None:
                raise
            self.complain(f"the header is lost ({error})")
            self._head_end = 0
            return {"run": {}}

    def _read_head(self) -> dict[str, Any]:
        start = os.pread(self.fd, HEADER_SIZE, 0)
        if not start.startswith(b"\x94\xa4HEAD"[: max(1, len(start))]):
            raise NotATrace(self.path)
        header = parse_header(start, 0)
        frame = read_frame(self.fd, 0, self.size)
        if frame is None:
            if header is None and len(start) == HEADER_SIZE:
                raise NotATrace(self.path, "not a spectrace trace: its first frame is damaged")
            if header is None or HEADER_SIZE + header[3] > self.size:
                raise TruncatedTrace(self.path, self.size)
            raise CorruptRecord(
                self.path, "HEAD frame", "its checksum does not hold; spectrace repair saves the steps", 0
            )
        self._head_end = frame.end
        return self._checked_head(frame)

    def _checked_head(self, frame: Frame) -> dict[str, Any]:
        try:
            head = unpack_record(frame.body)
        except BadBody as error:
            raise CorruptRecord(self.path, "HEAD frame", visible(str(error), limit=100), 0) from None
        if type(head) is not dict or "spectrace" not in head:
            raise NotATrace(self.path)
        if type(head["spectrace"]) is not int or head["spectrace"] > VERSION:
            raise UnsupportedVersion(self.path, visible(str(head["spectrace"]), limit=40), VERSION)
        schema = head.get("schema", SCHEMA)
        if type(schema) is not int or schema > SCHEMA:
            raise UnsupportedVersion(self.path, visible(str(schema), limit=40), SCHEMA, "schema")
        if type(head.get("run")) is not dict:
            raise CorruptRecord(self.path, "HEAD frame, field run", "an object", 0)
        return head

    def _open_by_tail(self) -> bool:
        """Opens by the tail of a file that was closed; False when there is none."""
        end = read_frame(self.fd, self.size - HEADER_SIZE, self.size)
        tail = None if end is None or end.kind != END else read_frame(self.fd, end.first_row, self.size)
        if tail is None or tail.kind != TAIL:
            return False
        body = self.body(tail) or {}
        rows, offsets, amends = body.get("rows"), body.get("index"), body.get("amends", [])
        if (
            type(rows) is not int
            or not self._can_hold(rows, tail.offset)
            or not _are_offsets(offsets, tail.offset)
            or not _are_offsets(amends, tail.offset)
            or counts_from_mapping(body.get("totals")).steps != rows
            or not self._is_frame(WHOLE_INDEX, *offsets[:1])
        ):
            self.complain(f"tail at byte {tail.offset:,} is damaged; the steps are found without it")
            return False
        self.num_rows, self._index_frames, self._amends = rows, offsets, amends
        self._indexed_rows = rows
        self._indexed = counts_from_mapping(body.get("totals"))
        self._data_end = offsets[0] if offsets else tail.offset
        self._complete(body)
        return True

    def _open_by_chain(self) -> None:
        """Finds the last `indx` frame; what lies behind it is scanned by `refresh`."""
        window = 2 * CHAIN_BYTES
        effort = ResyncEffort()
        while True:
            start = max(self._head_end, self.size - window)
            data = os.pread(self.fd, self.size - start, start)
            frame = rfind_frame(data, INDEX, start, effort)
            if frame is not None or start == self._head_end or window >= _TAIL_WINDOW:
                break
            window = min(4 * window, _TAIL_WINDOW)
        body = None if frame is None else self._index_body(frame)
        if frame is None or body is None:
            return
        if (
            not self._can_hold(body.rows, frame.offset)
            or not _are_offsets(body.amends, frame.offset)
            or body.totals.steps != body.rows
        ):
            self.complain(f"index at byte {frame.offset:,} is damaged; steps are found without it")
            return
        self._chain_start = frame.offset
        self._indexed, self._amends = body.totals, list(body.amends)
        self._indexed_rows = self.num_rows = body.rows
        self._data_end = frame.end

    def _is_frame(self, kind: bytes, offset: int | None = None) -> bool:
        """Whether a header of that kind is at an offset."""
        if offset is None or offset < self._head_end:
            return False
        header = parse_header(os.pread(self.fd, HEADER_SIZE, offset), 0)
        return header is not None and header[0] == kind

    def _can_hold(self, rows: int, end: int) -> bool:
        """Whether so many steps can lie before an offset; damage and lies can claim any number."""
        return 0 <= rows <= (end - self._head_end) // HEADER_SIZE * MAX_ROWS

    def _index_body(self, frame: Frame) -> IndexBody | None:
        try:
            return unpack_index(frame.body)
        except BadBody as error:
            self.complain(f"index at byte {frame.offset:,} is damaged ({error}); steps are found without it")
            return None

    # --- following ---

    def refresh(self) -> int:
        """Looks for frames written since the last look; the number of new steps."""
        if self.is_complete:
            return 0
        before, self.size = self.num_rows, os.fstat(self.fd).st_size
        for frame in scan_frames(self.fd, self._data_end, self.size, effort=self._effort):
            if frame.offset > self._data_end:
                self._note_hole(self._data_end, frame.offset)
            self._data_end = frame.end
            self._note(frame)
        self._tail_counts = None
        return self.num_rows - before

    def _note(self, frame: Frame) -> None:
        if frame.kind == STEP:
            self._note_steps(frame)
        elif frame.kind == TAIL:
            self._tail_body = self.body(frame)
        elif frame.kind == END:
            self._note_end()
        elif frame.kind not in (INDEX, WHOLE_INDEX):
            kind = frame.kind.decode("ascii", "replace")
            self._tail_others.setdefault(kind, []).append(frame.offset)
            if frame.kind == AMEND:
                self._amends.append(frame.offset)
            if frame.kind[:1].isupper() and frame.kind != HEAD:
                self.complain(f"a {kind} frame at byte {frame.offset:,} needs a newer spectrace")

    def _note_steps(self, frame: Frame) -> None:
        rows = claimed_rows(frame)
        if not rows:
            self.complain(f"STEP frame at byte {frame.offset:,} is damaged: it holds no steps")
        elif self.is_behind(frame, self.num_rows):
            if frame.first_row > self.num_rows:
                self.complain(
                    f"{frame.first_row - self.num_rows:,} steps are missing before byte {frame.offset:,}"
                )
            self._tail.append((frame.offset, frame.end, frame.first_row, rows))
            self.num_rows = frame.first_row + rows

    def is_behind(self, frame: Frame, next_row: int) -> bool:
        """Whether a STEP frame follows the steps before ``next_row``; one out of order is not shown."""
        if frame.first_row >= next_row and self._can_hold(frame.first_row, frame.offset):
            return True
        self.complain(f"STEP frame at byte {frame.offset:,} is out of order and is not shown")
        return False

    def _note_end(self) -> None:
        """A trace that was being followed has been closed."""
        if self._tail_body is not None:
            self._complete(self._tail_body)

    def _complete(self, tail: dict[str, Any]) -> None:
        end, lost = tail.get("end"), tail.get("lost")
        self.is_complete = True
        self.end = end if type(end) is dict else None
        self.lost_at_close = lost if type(lost) is int else 0

    def _note_hole(self, start: int, end: int) -> None:
        self.complain(
            f"bytes {start:,} to {end:,} are damaged and skipped; the whole steps around them are shown"
        )

    def _need_known(self, kind: str) -> None:
        """Says so when a frame that must be understood is not."""
        if kind[:1].isupper() and kind != HEAD.decode():
            self.complain(f"it holds {visible(kind)} frames, which need a newer spectrace")

    @property
    def data_end(self) -> int:
        """Offset behind the last whole frame seen."""
        return self._data_end

    @property
    def was_replaced(self) -> bool:
        """Another file stands under this one's name."""
        try:
            now = self.path.stat()
        except OSError:
            return False
        return (now.st_dev, now.st_ino) != self.identity

    @property
    def loss(self) -> str:
        """What became of an unclosed file since it was read, "" for nothing: gone | replaced | cut."""
        if self.is_complete:
            return ""
        if os.fstat(self.fd).st_size < self._data_end:
            return "cut"
        if not self.path.exists():
            return "gone"
        return "replaced" if self.was_replaced else ""

    @property
    def torn_bytes(self) -> int:
        """Bytes at the end of an unclosed file that are no whole frame."""
        return 0 if self.is_complete else self.size - self._data_end

    @property
    def is_locked(self) -> bool:
        """A writer holds the file."""
        if fcntl is None:
            return False
        try:
            fcntl.flock(self.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks: a live writer cannot be told from a dead one
            return False
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        return False

    # --- header records ---

    @property
    def run_unamended(self) -> dict[str, Any]:
        """The header as it was written first."""
        return self._run

    @property
    def run(self) -> dict[str, Any]:
        """The header with every amendment applied."""
        merged = self._run
        for fields in self._bodies(self._amends, AMEND):
            merged = deep_merge(merged, fields)
        return merged

    def _bodies(self, offsets: Iterable[int], kind: bytes) -> Iterator[dict[str, Any]]:
        """Bodies of the frames at ascending offsets; one that begins within another is none."""
        end = 0
        for offset in offsets:
            if offset < end:
                continue
            frame = self._frame_at(offset, kind)
            end = offset if frame is None else frame.end
            body = None if frame is None else self.body(frame)
            if body is not None:
                yield body

    def _frame_at(self, offset: int, kind: bytes) -> Frame | None:
        # An index that lies may send us to large frames again and again.
        frame = read_frame(self.fd, offset, self.size) if self._trust.left > 0 else None
        if frame is None or frame.kind != kind:
            self._trust.left -= MAX_BODY if frame is None else frame.end - offset
            self.complain(f"the {kind.decode()} frame at byte {offset:,} is damaged")
            return None
        return frame

    def body(self, frame: Frame) -> dict[str, Any] | None:
        """Body of a frame that holds a record; None when it is damaged."""
        try:
            body = unpack_record(frame.body)
        except BadBody as error:
            kind = frame.kind.decode("latin-1")
            self.complain(f"the {kind} frame at byte {frame.offset:,} is damaged: {error}")
            return None
        return body if type(body) is dict else None

    # --- frames ---

    def frames(self) -> Iterator[Frame]:
        """Every whole frame behind the header, in file order."""
        return self._scan(self._head_end, self._data_end)

    def frames_with_holes(self, on_hole: Hole) -> Iterator[Frame]:
        """Every whole frame behind the header, up to the index of a closed file or the end of another.

        Args:
            on_hole: told of bytes that are no whole frame, a torn end included.
        """

        def note(start: int, end: int) -> None:
            self._note_hole(start, end)
            on_hole(start, end)

        stop = self._data_end if self.is_complete else self.size
        return scan_frames(self.fd, self._head_end, stop, note, effort=self._effort)

    def _scan(self, start: int, stop: int, block: int = BLOCK) -> Iterator[Frame]:
        return scan_frames(self.fd, start, stop, self._note_hole, block, self._effort)


def _are_offsets(given: Any, end: int) -> TypeGuard[list[int]]:
    """Whether this is a list of ascending offsets before an end."""
    return type(given) is list and all(type(n) is int and 0 <= n < end for n in given) and ascend(given, end)


def ascend(offsets: Sequence[int] | Array, end: int) -> bool:
    """Whether offsets ascend, and all lie before an end."""
    found = np.asarray(offsets, np.uint64)
    return not len(found) or bool((found[1:] > found[:-1]).all() and int(found[-1]) < end)


def claimed_rows(frame: Frame) -> int:
    """Rows a STEP frame claims, without decoding it; 0 when it does not say."""
    body = frame.body
    if len(body) < 6:
        return 0
    # [rows, ...] is a fixarray, array16 or array32 whose first item is an unsigned integer.
    at = 1 if body[0] & 0xF0 == 0x90 else {0xDC: 3, 0xDD: 5}.get(body[0], -1)
    if at < 0:
        return 0
    lead = body[at]
    width = {0xCC: 1, 0xCD: 2, 0xCE: 4}.get(lead, 0)
    rows = lead if lead < 0x80 else int.from_bytes(body[at + 1 : at + 1 + width], "big")
    return rows if rows <= MAX_ROWS else 0
