"""Files of a stranger: opened only when they are regular, read only up to a limit.

Every `OSError` leaves here as a `CheckpointError` that names the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from io import RawIOBase
from pathlib import Path
from typing import Any

from spectrace.errors import CheckpointError

CONFIG_LIMIT = 2 << 20
"""Largest config.json, in bytes."""


def open_file(path: Path) -> RawIOBase:
    """Opens a regular file; a pipe, a device or a directory is refused before it can block.

    Raises:
        CheckpointError: with the reason of the system.
    """
    try:
        kind = path.stat().st_mode
        if stat.S_ISREG(kind):
            return path.open("rb", buffering=0)
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {reason(error)}") from error
    what = "a directory" if stat.S_ISDIR(kind) else "no regular file"
    raise CheckpointError(path, f"cannot be read: {what}")


def reason(error: OSError) -> str:
    """What the system says, without path and number."""
    return error.strerror or type(error).__name__


def read_at(file: RawIOBase, path: Path, start: int, size: int) -> bytes:
    """Bytes of an open file, all of them.

    Raises:
        CheckpointError: the file ends earlier, or the system cannot read it.
    """
    data = bytearray(size)
    read_into(file, path, start, memoryview(data))
    return bytes(data)


def read_into(file: RawIOBase, path: Path, start: int, piece: memoryview) -> None:
    """Fills a piece of memory from an open file.

    Raises:
        CheckpointError: the file ends earlier, or the system cannot read it.
    """
    try:
        file.seek(start)
        while len(piece):
            got = file.readinto(piece)
            if not got:
                raise CheckpointError(path, f"ends {len(piece):,} bytes too early")
            piece = piece[got:]
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {reason(error)}") from error


def file_size(file: RawIOBase) -> int:
    """Bytes of an open file."""
    return os.fstat(file.fileno()).st_size


def read_whole(path: Path, limit: int) -> bytes:
    """A whole file that must be small.

    Raises:
        CheckpointError: it cannot be read or is larger than the limit.
    """
    with open_file(path) as file:
        size = file_size(file)
        if size > limit:
            raise CheckpointError(path, f"{size:,} bytes; more than {limit:,} are not read")
        return read_at(file, path, 0, size)


def read_object(path: Path, limit: int = CONFIG_LIMIT) -> dict[str, Any]:
    """One JSON object.

    Raises:
        CheckpointError: the file cannot be read, is too large, no JSON, or no object.
    """
    return parse_object(read_whole(path, limit), path)


def parse_object(data: bytes, path: Path, where: str = "") -> dict[str, Any]:
    """JSON bytes as an object; `where` names the part of the file they come from.

    Raises:
        CheckpointError: no JSON, nested too deeply, or no object.
    """
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise CheckpointError(path, f"{where}nested too deeply to be read as JSON") from error
    except ValueError as error:
        at = f" at byte {error.pos:,}" if isinstance(error, json.JSONDecodeError) else ""
        raise CheckpointError(path, f"{where}is no JSON{at}") from error
    if not isinstance(found, dict):
        raise CheckpointError(path, f"{where}is JSON, but no object")
    return found


def sha256(data: bytes) -> str:
    """Digest of bytes, as lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()
