"""Frames: the checksummed pieces a trace file is made of.

A file is frames and nothing else, and every byte of it is msgpack: a frame is the array
``[kind, crc32, first_row, body]`` with forced widths, so that its header has a fixed size and any
msgpack library walks the file. Owns framing, checksums and finding the next whole frame after
damage; refuses to know what a body says, except for its size.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import msgpack

VERSION = 1
"""Version of the framing, the first thing in a HEAD body; the frame header itself never changes."""

_HEADER = struct.Struct(">2s4sBIBQBI")
HEADER_SIZE = _HEADER.size
"""Bytes before a body: 25."""
_START = b"\x94\xa4"
_CHECKED = struct.Struct(">4sQI")
"""What the checksum covers before the body: kind, first row, size of the body."""

HEAD = b"HEAD"
STEP = b"STEP"
AMEND = b"amnd"
REQUEST = b"reqs"
REQUEST_DETAIL = b"reqd"
TOKENS = b"toks"
REFERENCE = b"refs"
GAP = b"gap_"
INDEX = b"indx"
WHOLE_INDEX = b"idxw"
TAIL = b"tail"
END = b"tend"
"""Kinds. Upper-case first letter: a reader must understand it; lower-case: skip if unknown."""

MAX_BODY = 4 << 20
"""Largest body of a frame, bytes. msgpack spends up to 56 bytes of memory on one byte of a hostile
body, so this also bounds what opening a stranger's file can cost."""


UNCOUNTED = 256 << 10
"""Bodies up to this size are unpacked without counting what is in them."""
MAX_CONTAINERS = 1 << 19
"""Most lists, maps, entries of maps and pairs of list items in one body; each takes up to 116 bytes of memory
for a single byte of the body."""
MAX_DEPTH = 100
"""Deepest nesting of a record."""


class Frame(NamedTuple):
    """One whole frame, checksum verified."""

    kind: bytes
    first_row: int
    """Number of steps in the file before this frame."""
    offset: int
    end: int
    body: memoryview | bytes


def pack_frame(kind: bytes, first_row: int, body: bytes) -> bytes:
    """Header and body of one frame."""
    crc = _checksum(kind, first_row, body)
    return _HEADER.pack(_START, kind, 0xCE, crc, 0xCF, first_row, 0xC6, len(body)) + body


def _checksum(kind: bytes, first_row: int, body: Any) -> int:
    return zlib.crc32(body, zlib.crc32(_CHECKED.pack(kind, first_row, len(body))))


def parse_header(buffer: Any, at: int) -> tuple[bytes, int, int, int] | None:
    """Kind, checksum, first row and body size of the header at ``at``; None if there is none."""
    if len(buffer) - at < HEADER_SIZE:
        return None
    start, kind, m1, crc, m2, first_row, m3, size = _HEADER.unpack_from(buffer, at)
    if start != _START or m1 != 0xCE or m2 != 0xCF or m3 != 0xC6 or size > MAX_BODY:
        return None
    return kind, crc, first_row, size


def parse_frame(buffer: Any, at: int, base: int = 0) -> Frame | None:
    """The frame at ``at`` of a buffer, if it is whole and its checksum holds.

    Args:
        buffer: bytes or memoryview.
        at: index into the buffer.
        base: file offset of the buffer's first byte.
    """
    # `parse_header` and `_checksum` written out: every scan spends most of its time here.
    if len(buffer) - at < HEADER_SIZE:
        return None
    start, kind, m1, crc, m2, first_row, m3, size = _HEADER.unpack_from(buffer, at)
    end = at + HEADER_SIZE + size
    if start != _START or m1 != 0xCE or m2 != 0xCF or m3 != 0xC6 or size > MAX_BODY or end > len(buffer):
        return None
    body = memoryview(buffer)[at + HEADER_SIZE : end]
    if zlib.crc32(body, zlib.crc32(_CHECKED.pack(kind, first_row, size))) != crc:
        return None
    return Frame(kind, first_row, base + at, base + end, body)


class ResyncEffort:
    """How much a search for whole frames may still cost.

    A hostile file may claim a large body at every byte; without a bound the search would take hours.
    """

    __slots__ = ("left",)

    def __init__(self, num_bytes: int = 1 << 30) -> None:
        self.left = num_bytes

    def spend(self, buffer: bytes, at: int) -> bool:
        """False when the frame claimed at ``at`` may not be tried."""
        header = parse_header(buffer, at)
        # Even to look at a header takes as long as the checksum of a KiB.
        self.left -= 1024 if header is None else 1024 + header[3]
        return self.left > 0


def find_frame(buffer: bytes, at: int, base: int, effort: ResyncEffort) -> Frame | None:
    """The first whole frame at or after ``at``; None when the buffer holds no more."""
    while (at := buffer.find(_START, at)) >= 0 and effort.spend(buffer, at):
        frame = parse_frame(buffer, at, base)
        if frame is not None:
            return frame
        at += 1
    return None


def rfind_frame(buffer: bytes, kind: bytes, base: int, effort: ResyncEffort) -> Frame | None:
    """The last whole frame of one kind in a buffer."""
    at = len(buffer)
    while (at := buffer.rfind(_START + kind, 0, at)) >= 0 and effort.spend(buffer, at):
        frame = parse_frame(buffer, at, base)
        if frame is not None:
            return frame
    return None


# --- bodies ------------------------------------------------------------------------------------


class BadBody(ValueError):
    """A body is not the msgpack it must be."""


class _Allowance:
    """Counts what takes much memory for few bytes, see `MAX_CONTAINERS`."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_CONTAINERS

    def take_list(self, made: list[Any]) -> list[Any]:
        self._spend(1 + len(made) // 2)
        return made

    def take_map(self, made: dict[Any, Any]) -> dict[Any, Any]:
        self._spend(1 + len(made))
        return _with_text_keys(made)

    def _spend(self, number: int) -> None:
        self.left -= number
        if self.left < 0:
            raise BadBody(f"more than {MAX_CONTAINERS:,} lists, maps, entries and pairs of items")


def _refuse_extension(code: int, data: bytes) -> Any:
    raise BadBody("extension types are not allowed")


def _with_text_keys(made: dict[Any, Any]) -> dict[Any, Any]:
    """The map; msgpack's own strictness lets bytes pass as keys, which JSON cannot hold."""
    if not all(type(key) is str for key in made):
        raise BadBody("a map has a key that is not text")
    return made


def pack_body(value: Any) -> bytes:
    """A body as msgpack; text that is no valid UTF-8 keeps its bytes."""
    packed: bytes = msgpack.packb(value, use_bin_type=True, unicode_errors="surrogatepass")
    return packed


def unpack_record(body: Any) -> Any:
    """A body that holds a record: as `unpack_body`, and of bounded depth.

    Raises:
        BadBody: not msgpack, not plain, or too deep for what walks a record.
    """
    value = unpack_body(body)
    if not is_shallow(value):
        raise BadBody(f"nested deeper than {MAX_DEPTH} levels")
    return value


def is_shallow(value: Any) -> bool:
    """Whether maps and lists are nested at most `MAX_DEPTH` deep."""
    level = _containers([value])
    for _ in range(MAX_DEPTH):
        if not level:
            return True
        level = [inner for outer in level for inner in _containers(outer)]
    return not level


def _containers(outer: Any) -> list[Any]:
    items = outer.values() if type(outer) is dict else outer
    return [item for item in items if type(item) is dict or type(item) is list]


def unpack_body(body: Any) -> Any:
    """A body's msgpack value, under the limits for untrusted files.

    Plain values only: no extension type, no timestamp; map keys are text. The size of a body bounds
    every count in it.

    Raises:
        BadBody: not msgpack, or not plain.
    """
    size = len(body)
    # In a small body nothing can be large; counting would cost as much as unpacking.
    allowance = _Allowance() if size > UNCOUNTED else None
    try:
        return msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            list_hook=None if allowance is None else allowance.take_list,
            object_hook=_with_text_keys if allowance is None else allowance.take_map,
            unicode_errors="surrogatepass",
            ext_hook=_refuse_extension,
            max_ext_len=0,
            max_str_len=size,
            max_bin_len=size,
            max_array_len=size,
            max_map_len=size,
        )
    except BadBody:
        raise
    except (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        raise BadBody(str(error) or type(error).__name__) from None
