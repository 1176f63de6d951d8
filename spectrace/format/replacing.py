"""A new trace in the place of an old one, which stays under a hidden name until there is something new.

Owns the hidden names, and what is done about them when a recording was killed in between. Asks nobody whether
anything may be replaced at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spectrace.errors import RecorderError, SpectraceError
from spectrace.format import reader


@contextmanager
def old_kept(*outs: Path) -> Iterator[None]:
    """Keeps what a recording replaces until the recording is there.

    The files get a second, hidden name; when what runs inside raises before a step is in the new file, the
    first of `outs`, they are put back. Within another one for the same files it does nothing.
    """
    named = [(out, hidden(out, "old")) for out in outs if out.exists()]
    kept = [(out, old) for out, old in named if not old.exists()]
    try:
        for out, old in kept:
            try:
                os.link(out, old)
            except OSError:  # a file system without hard links
                out.replace(old)
        yield
    except BaseException:
        if not has_steps(outs[0]):
            for out, old in kept:
                if old.exists():
                    old.replace(out)
        raise
    finally:
        for _, old in kept:
            old.unlink(missing_ok=True)


@contextmanager
def in_place_of(*outs: Path, overwrite: bool) -> Iterator[None]:
    """Makes room for a recording; what was there comes back unless the recording has a step.

    Args:
        outs: the trace, and what lies beside it.
        overwrite: whether what is there may be replaced; without it nothing is touched.

    Raises:
        RecorderError: the trace that was to replace another has no step.
    """
    if not (overwrite and outs[0].exists()):
        yield
        return
    with old_kept(*outs):
        for out in outs:
            out.unlink(missing_ok=True)
        yield
        if not has_steps(outs[0]):
            raise RecorderError(f"{outs[0]}: not one step could be written; is the disk full?")


def put_back(*outs: Path) -> list[str]:
    """Finds what recordings that were killed have left of the files they were replacing.

    The old files come back where the killed recording holds no step; otherwise both stay.

    Args:
        outs: as in `old_kept`: the trace, and what lies beside it.

    Returns:
        What was done or found, one sentence each.
    """
    said = []
    has_new = has_steps(outs[0])
    for out in outs:
        for old in sorted(out.parent.glob(_hidden_pattern(out))):
            pid = old.name.split(".")[-2]
            if not pid.isdigit() or _is_alive(int(pid)):
                continue
            if out.exists() and old.samefile(out):
                old.unlink()  # killed before it replaced anything
            elif has_new:
                what = "was written by a recording that was killed; what it replaced is"
                said.append(f"{out}: {what} {old.name}: give that another name to keep it, or remove it")
            else:
                old.replace(out)
                said.append(f"{out}: put back; the recording that was to replace it was killed before a step")
    return said


def has_steps(path: Path) -> bool:
    """Whether a trace can be opened and holds a step."""
    try:
        with reader.open(path) as trace:
            return len(trace) > 0
    except (OSError, SpectraceError):
        return False


def hidden(out: Path, kind: str) -> Path:
    """A name beside OUT that is nobody else's, no longer than a file system allows.

    Its end is OUT's: names that only differ behind a long start stay apart.
    """
    return out.with_name(f".{out.name[-40:]}.{os.getpid()}.{kind}")


def _hidden_pattern(out: Path) -> str:
    name = "".join(f"[{c}]" if c in "*?[" else c for c in out.name[-40:])
    return f".{name}.*.old"


def _is_alive(pid: int) -> bool:
    if os.name != "posix":  # to ask there is to kill
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's
        return True
    return True
