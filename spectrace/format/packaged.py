"""A trace inside a zip or gzip file, unpacked to a file without a name; the one place where either is opened.

What comes from a stranger is measured before it is unpacked: the size of the directory, the number of
members, the size and the ratio of the one trace in it. A name is never used to write, nothing else in a zip
is touched.
"""

from __future__ import annotations

import os
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from spectrace.errors import NotATrace, TraceError
from spectrace.format.text import visible

SUFFIX = ".spectrace"
MAX_UNPACKED = 1 << 30
"""Largest trace that is unpacked, bytes."""
MAX_RATIO = 200
"""Most unpacked bytes per packed byte, beyond the first `_FREE_BYTES`; traces pack twenty times at best."""
MAX_MEMBERS = 64
MAX_GZIP_MEMBERS = 1024
MAX_DIRECTORY = 64 << 10
"""Largest directory of a zip, bytes."""
_FREE_BYTES = 16 << 20
_BLOCK = 256 << 10
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, RuntimeError, LookupError,
    OverflowError,
)  # fmt: skip
"""What zipfile raises for a file that is none."""
_EOCD = struct.Struct("<4s4H2LH")
"""End of central directory record: PKWARE APPNOTE.TXT 4.3.16."""


def unpacked(path: Path, fd: int) -> tuple[int, str | None] | None:
    """The trace in a zip or gzip file.

    Args:
        path: its name, for messages.
        fd: the file, open for reading; stays open.

    Returns:
        A file descriptor of the trace, which the caller closes, and a sentence where it is not whole; None
        when the file is neither zip nor gzip.

    Raises:
        TraceError: a limit is exceeded, or there is not exactly one trace in it.
    """
    start = os.pread(fd, 4, 0)
    if start[:2] == b"\x1f\x8b":
        return _from_gzip(path, fd)
    if start in (b"PK\x03\x04", b"PK\x05\x06"):
        return _from_zip(path, fd), None
    return None


# --- zip ---------------------------------------------------------------------------------------


def _from_zip(path: Path, fd: int) -> int:
    size = os.fstat(fd).st_size
    _check_directory(path, fd, size)
    with os.fdopen(os.dup(fd), "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                member = _the_trace(path, archive.infolist(), size)
                with archive.open(member) as source:
                    return _copied(path, _blocks(source), member.file_size, member.compress_size)
        except _DAMAGE as error:
            raise TraceError(path, f"a damaged zip file: {visible(str(error), limit=100)}") from None


def _check_directory(path: Path, fd: int, size: int) -> None:
    """Holds the directory against the limits before anything is made of it."""
    window = os.pread(fd, min(size, 65_536 + _EOCD.size), max(0, size - 65_536 - _EOCD.size))
    at = window.rfind(b"PK\x05\x06")
    if at < 0 or len(window) - at < _EOCD.size:
        raise TraceError(path, "a damaged zip file: it has no directory")
    _, disk, _, _, members, directory, offset, _ = _EOCD.unpack_from(window, at)
    if disk or window[max(0, at - 20) : at].startswith(b"PK\x06\x07") or 0xFFFFFFFF in (directory, offset):
        raise TraceError(path, "a zip file of several parts or of more than 4 GiB is not opened")
    if members > MAX_MEMBERS or directory > MAX_DIRECTORY:
        raise TraceError(
            path,
            f"a zip file with {members:,} members and a directory of {directory:,} bytes is not opened; "
            f"at most {MAX_MEMBERS} and {MAX_DIRECTORY:,} are",
        )


def _the_trace(path: Path, members: list[zipfile.ZipInfo], size: int) -> zipfile.ZipInfo:
    """The one member that is a trace; every member must be harmless."""
    names = [member.filename for member in members]
    if len(members) > MAX_MEMBERS or len(set(names)) < len(names):
        raise TraceError(path, "a zip file with members of the same name, or too many, is not opened")
    for member in members:
        _check_member(path, member)
    traces = [member for member in members if member.filename.endswith(SUFFIX)]
    if not traces:
        raise NotATrace(path, f"a zip file without a *{SUFFIX} file in it")
    if len(traces) > 1:
        raise TraceError(path, f"a zip file with {len(traces)} traces in it; unpack it and name one")
    (trace,) = traces
    if trace.compress_size > size:
        raise TraceError(path, "a damaged zip file: a member is larger than the file")
    _check_size(path, trace.file_size, trace.compress_size)
    return trace


def _check_member(path: Path, member: zipfile.ZipInfo) -> None:
    name = member.orig_filename
    parts = PurePosixPath(name).parts
    shown = visible(name, limit=60)
    if not name or "\\" in name or "\0" in name or ":" in name or name.startswith("/") or ".." in parts:
        raise TraceError(path, f"a zip file whose member {shown} leads out of its folder is not opened")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise TraceError(path, f"a zip file whose member {shown} is a link is not opened")
    if member.flag_bits & 0x41:
        raise TraceError(path, f"a zip file whose member {shown} is encrypted is not opened")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise TraceError(
            path, f"a zip file whose member {shown} is neither stored nor deflated is not opened"
        )


def _check_size(path: Path, size: int, packed: int) -> None:
    if size > MAX_UNPACKED:
        raise TraceError(
            path, f"unpacks to {size:,} bytes; at most {MAX_UNPACKED:,} are unpacked, unpack it by hand"
        )
    if size > _FREE_BYTES + MAX_RATIO * packed:
        raise TraceError(
            path, f"unpacks to more than {MAX_RATIO} times its {packed:,} bytes, as no trace does; not opened"
        )


def _blocks(source: IO[bytes]) -> Iterator[bytes]:
    while block := source.read(_BLOCK):
        yield block


# --- gzip --------------------------------------------------------------------------------------


def _from_gzip(path: Path, fd: int) -> tuple[int, str | None]:
    problems: list[str] = []
    packed = os.fstat(fd).st_size
    copy = _copied(path, _gunzipped(path, fd, problems), None, packed)
    return copy, problems[0] if problems else None


def _gunzipped(path: Path, fd: int, problems: list[str]) -> Iterator[bytes]:
    """What a gzip file holds, as far as it is whole."""
    at, waiting = 0, b""
    stream = zlib.decompressobj(wbits=31)
    has_any = False
    members = 1
    while True:
        data = waiting or os.pread(fd, _BLOCK, at)
        at += 0 if waiting else len(data)
        waiting = b""
        if not data:
            break
        try:
            made = stream.decompress(data, _BLOCK)
        except zlib.error as error:
            if not has_any:
                raise TraceError(path, f"a damaged gzip file: {error}") from None
            problems.append(f"the gzip file is damaged; what is whole before that is shown ({error})")
            return
        has_any = has_any or bool(made)
        if made:
            yield made
        waiting = stream.unconsumed_tail
        if stream.eof:
            waiting = stream.unused_data.lstrip(b"\0")  # tapes and block devices pad with zeros
            if not waiting and not os.pread(fd, 1, at):
                return
            members += 1
            if members > MAX_GZIP_MEMBERS:
                raise TraceError(path, f"a gzip file of more than {MAX_GZIP_MEMBERS:,} members is not opened")
            stream = zlib.decompressobj(wbits=31)
    if not stream.eof:
        problems.append("the gzip file ends early; what is whole before that is shown")


# --- both --------------------------------------------------------------------------------------


def _copied(path: Path, blocks: Iterator[bytes], size: int | None, packed: int) -> int:
    """The blocks in a file without a name.

    Args:
        path: the package, for messages.
        blocks: what it holds.
        size: bytes it says it holds; None when it does not say.
        packed: bytes it was packed in.
    """
    limit = MAX_UNPACKED if size is None else size
    written = 0
    try:
        with tempfile.TemporaryFile(prefix="spectrace-") as copy:
            for block in blocks:
                if not written and (block[:2] == b"\x1f\x8b" or block[:2] == b"PK"):
                    raise TraceError(path, "a package within a package is not opened; unpack it once by hand")
                written += len(block)
                if written > limit:
                    raise TraceError(path, f"unpacks to more than the {limit:,} bytes allowed; not opened")
                _check_size(path, written, packed)
                copy.write(block)
            copy.flush()
            return os.dup(copy.fileno())
    except OSError as error:
        raise TraceError(path, f"cannot be unpacked: {error.strerror or error}") from None
