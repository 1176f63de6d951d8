"""The list of faults: what goes wrong beside, beneath or inside a recording.

Each runs in a process of its own, see `host.py`. What the table says of it is measured, see `outcome.py`;
here stands only what must hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.reliability import beneath, beside, inside
from benchmarks.reliability.host import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong once."""

    name: str
    words: str
    """What the table calls it."""
    act: Callable[[Host], None]
    ends: int = 0
    """How the host ends by itself: exit code, or minus the signal."""
    raises: str | None = None
    """Exception that comes out of the host's own code."""
    warnings: int = 0
    """Lines in the log."""
    is_whole: bool = False
    """Every step is in the trace."""
    is_declared: bool = False
    """Steps that are missing are counted in the trace."""
    is_trace: bool = True
    """The file opens afterwards."""
    state: str = "closed"
    """As the reader says; "" where the room that is left decides."""
    needs_disk: bool = False
    """Happens on a file system of 1 MB, which not everybody may mount."""


FAULTS = (
    Fault(name="none", words="nothing goes wrong", act=beside.nothing, is_whole=True),
    # --- ends of the process ---
    Fault(name="sigkill", words="SIGKILL", act=beside.sigkill, ends=-9, state="unclosed"),
    Fault(
        name="sigkill-eagle3",
        words="SIGKILL, EAGLE-3",
        act=beside.sigkill_eagle3,
        ends=-9,
        state="unclosed",
    ),
    Fault(name="sigterm", words="SIGTERM, not handled", act=beside.sigterm, ends=-15, state="unclosed"),
    Fault(
        name="ctrl-c",
        words="Ctrl-C",
        act=beside.ctrl_c,
        ends=1,
        raises="KeyboardInterrupt",
        is_whole=True,
    ),
    Fault(name="os-exit", words="host calls `os._exit`", act=beside.os_exit, ends=3, state="unclosed"),
    Fault(
        name="left-open",
        words="interpreter exit without close",
        act=beside.left_open,
        ends=0,
        is_whole=True,
    ),
    Fault(
        name="raised",
        words="exception out of `generate`",
        act=beside.raised,
        ends=1,
        raises="ZeroDivisionError",
        is_whole=True,
    ),
    # --- other processes and threads ---
    Fault(
        name="fork",
        words="fork: data loader workers, a child that generates",
        act=beside.forked,
        is_whole=True,
    ),
    Fault(name="spawn", words="multiprocessing spawn with the model", act=beside.spawned, is_whole=True),
    Fault(name="threads", words="four threads generate at once", act=beside.threads, is_whole=True),
    Fault(name="two", words="two recorders on one file", act=beside.two_recorders, is_whole=True),
    # --- the file ---
    Fault(
        name="full",
        words="file system full (tmpfs of 1 MB), to the end",
        act=beneath.full,
        needs_disk=True,
        warnings=1,
        is_declared=True,
        state="",
    ),
    Fault(
        name="full-for-a-while",
        words="file system full, then room again",
        act=beneath.full_for_a_while,
        needs_disk=True,
        warnings=1,
        is_declared=True,
    ),
    Fault(
        name="file-size",
        words="RLIMIT_FSIZE reached",
        act=beneath.file_size,
        warnings=1,
        is_declared=True,
        state="",
    ),
    Fault(
        name="dev-full",
        words="every write fails (`/dev/full`)",
        act=beneath.dev_full,
        warnings=1,
        state="unclosed",
    ),
    Fault(
        name="read-only",
        words="read-only directory",
        act=beneath.read_only,
        ends=1,
        raises="RecorderError",
        is_trace=False,
    ),
    Fault(name="deleted", words="file deleted", act=beneath.deleted, warnings=1, is_trace=False),
    Fault(
        name="truncated",
        words="file truncated to nothing",
        act=beneath.truncated,
        warnings=1,
        state="unclosed",
    ),
    Fault(name="cut", words="file truncated to half", act=beneath.cut, warnings=1, state="unclosed"),
    Fault(
        name="replaced",
        words="another file put in its place",
        act=beneath.replaced,
        warnings=1,
        is_trace=False,
    ),
    Fault(
        name="stalled",
        words="disk stalls for 1 s",
        act=beneath.stalled,
        is_whole=True,
    ),
    Fault(
        name="stalled-for-good",
        words="disk stalls and never comes back",
        act=beneath.stalled_for_good,
        warnings=1,
        state="unclosed",
    ),
    # --- inside the recorder ---
    Fault(name="clock", words="clocks go backwards", act=inside.clock, is_whole=True),
    Fault(name="hook", words="exception inside a hook", act=inside.hook, warnings=1),
    Fault(
        name="hook-eagle3", words="exception inside the EAGLE-3 recorder", act=inside.hook_eagle3, warnings=1
    ),
    Fault(
        name="memory",
        words="MemoryError on the writing thread",
        act=inside.memory,
        warnings=1,
        is_declared=True,
    ),
    Fault(
        name="device",
        words="copies as from another device (stand-in)",
        act=inside.device,
        is_whole=True,
    ),
    Fault(
        name="meta",
        words="draft on the meta device: `generate` itself fails",
        act=inside.meta,
        ends=1,
        raises="the same exception",
        is_whole=True,
    ),
    Fault(name="compiled", words="`torch.compile`d target", act=inside.compiled, warnings=1, is_whole=True),
)
"""In the order of the table."""
