"""Faults beneath the recording: a disk that is full or stalls, a file that others change."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path

from benchmarks.reliability.host import FAULT_AT, Host
from spectrace.format import outfile, writer

_NOBODY = 65_534


def _flushed() -> None:
    """Waits until the steps so far are written: some faults need a file with something in it."""
    time.sleep(0.3)


# --- full ---


def _fill(folder: Path, leave: int) -> Path:
    ballast = folder / "ballast"
    room = os.statvfs(folder)
    with ballast.open("wb") as file:
        file.write(bytes(max(0, room.f_bavail * room.f_frsize - leave)))
    return ballast


def full(host: Host) -> None:
    """A real file system without room, until the end."""
    _fill(host.path.parent, 40_960)
    with host.record():
        host.generate()


def full_for_a_while(host: Host) -> None:
    """Somebody makes room while the recording goes on."""
    ballast = _fill(host.path.parent, 20_480)

    def free() -> None:
        ballast.unlink()
        time.sleep(2 * outfile.RETRY_SECONDS)

    with host.record():
        host.generate({FAULT_AT: _flushed, FAULT_AT + 10: free})


def file_size(host: Host) -> None:
    """The limit that `ulimit -f` sets."""
    with host.record():
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_960, resource.RLIM_INFINITY))
        host.generate()


def dev_full(host: Host) -> None:
    """From one moment on there is no room for anything."""

    def swap() -> None:
        _flushed()
        nowhere = os.open("/dev/full", os.O_RDWR)
        os.dup2(nowhere, _descriptor(host.path))
        os.close(nowhere)

    with host.record():
        host.generate({FAULT_AT: swap})


def _descriptor(path: Path) -> int:
    """The descriptor under which this process has a file open."""
    for entry in Path("/proc/self/fd").iterdir():
        if os.path.realpath(entry) == os.path.realpath(path):
            return int(entry.name)
    raise FileNotFoundError(path)


# --- not there, not ours ---


def read_only(host: Host) -> None:
    """Nobody may write there; root becomes somebody first."""
    host.path.parent.chmod(0o555)
    try:
        if os.geteuid() == 0:
            os.seteuid(_NOBODY)
        with host.record():
            host.generate()
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        host.path.parent.chmod(0o755)


def deleted(host: Host) -> None:
    """Somebody tidies up."""

    def remove() -> None:
        _flushed()
        host.path.unlink()

    with host.record():
        host.generate({FAULT_AT: remove})


def truncated(host: Host) -> None:
    """A rotation of logs that empties what it has copied."""

    def empty() -> None:
        _flushed()
        os.truncate(host.path, 0)

    with host.record():
        host.generate({FAULT_AT: empty})


def cut(host: Host) -> None:
    """The second half goes."""

    def halve() -> None:
        _flushed()
        os.truncate(host.path, host.path.stat().st_size // 2)

    with host.record():
        host.generate({FAULT_AT: halve})


def replaced(host: Host) -> None:
    """Another file gets the name."""

    def replace() -> None:
        _flushed()
        other = host.path.with_name("other")
        other.write_text("not a trace")
        other.replace(host.path)

    with host.record():
        host.generate({FAULT_AT: replace})


# --- slow ---


def _stall(host: Host, until: threading.Event) -> None:
    """Makes every write to the trace wait, as on a network file system whose server is gone."""
    write, fd = os.pwrite, _descriptor(host.path)

    def waiting(to: int, data: bytes, offset: int) -> int:
        if to == fd:
            until.wait()
        return write(to, data, offset)

    os.pwrite = waiting


def stalled(host: Host) -> None:
    """Writes wait for a second and then go on."""
    again = threading.Event()

    def begin() -> None:
        _flushed()
        _stall(host, again)
        threading.Timer(1, again.set).start()

    with host.record():
        host.generate({FAULT_AT: begin})


def stalled_for_good(host: Host) -> None:
    """Writes never return."""

    def begin() -> None:
        _flushed()
        _stall(host, threading.Event())

    writer.PATIENCE_SECONDS = 1
    with host.record():
        host.generate({FAULT_AT: begin})
