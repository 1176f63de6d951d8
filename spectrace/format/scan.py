"""Reading frames from a file: in order, across damage, in bounded memory.

Works on a file descriptor with positioned reads, so that several readers and a live writer do not disturb
each other. Knows frames, not what they say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from spectrace.format.frames import (
    HEADER_SIZE,
    MAX_BODY,
    Frame,
    ResyncEffort,
    find_frame,
    parse_frame,
    parse_header,
)

BLOCK = 256 << 10
"""Bytes read at a time."""

Hole = Callable[[int, int], None]
"""Told of skipped bytes: start and end offset."""


def read_frame(fd: int, offset: int, size: int) -> Frame | None:
    """The whole frame at an offset; None when there is none.

    Args:
        fd: file descriptor.
        offset: where the frame starts; any number, nothing outside the file is read.
        size: size of the file, or the offset at which the frame must have ended.
    """
    if not 0 <= offset <= size - HEADER_SIZE:
        return None
    header = parse_header(os.pread(fd, HEADER_SIZE, offset), 0)
    if header is None or offset + HEADER_SIZE + header[3] > size:
        return None
    return parse_frame(os.pread(fd, HEADER_SIZE + header[3], offset), 0, offset)


def scan_frames(
    fd: int,
    start: int,
    stop: int,
    on_hole: Hole | None = None,
    block: int = BLOCK,
    effort: ResyncEffort | None = None,
) -> Iterator[Frame]:
    """Whole frames between two offsets, in order.

    Bytes that are no whole frame are skipped up to the next one and reported. A frame that begins before
    ``stop`` and ends behind it is not whole.

    Args:
        fd: file descriptor.
        start: offset of a frame.
        stop: offset behind the last byte to look at.
        on_hole: told of every range that was skipped, the torn end included.
        block: bytes to read at a time.
        effort: what searching behind damage may cost, where it is shared by several scans.
    """
    buffer, base, at = b"", start, 0
    effort = effort or ResyncEffort()
    while base + at < stop:
        frame = parse_frame(buffer, at, base)
        if frame is None:
            wanted = _wanted(buffer, at)
            if base + len(buffer) < stop and len(buffer) - at < wanted:
                have = len(buffer) - at
                # The rest of the buffer is read again: cheaper than joining it to what comes next.
                base += at
                buffer, at = os.pread(fd, min(max(wanted, block), stop - base), base), 0
                if len(buffer) <= have:
                    stop = base + len(buffer)  # the file has become shorter
                continue
            frame = _resync(fd, base + at, stop, effort)
            if on_hole is not None:
                on_hole(base + at, stop if frame is None else frame.offset)
            if frame is None:
                return
            buffer, base, at = b"", frame.end, 0
            yield frame
            continue
        at = frame.end - base
        yield frame


def _wanted(buffer: bytes, at: int) -> int:
    """Bytes needed from ``at`` to tell whether a whole frame is there."""
    header = parse_header(buffer, at)
    return HEADER_SIZE + (header[3] if header else 0)


def _resync(fd: int, start: int, stop: int, effort: ResyncEffort) -> Frame | None:
    """The first whole frame behind a damaged place."""
    at = start + 1
    while at < stop:
        window = os.pread(fd, min(2 * (MAX_BODY + HEADER_SIZE), stop - at), at)
        frame = find_frame(window, 0, at, effort)
        if frame is not None:
            return frame
        if at + len(window) >= stop or not window:
            return None
        # A frame may begin in the second half of this window and end behind it.
        at += len(window) - (MAX_BODY + HEADER_SIZE)
    return None
