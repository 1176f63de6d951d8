"""Arguments and options that several commands share, and what they promise about files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from spectrace.cli.output import shown
from spectrace.errors import RecorderError, UsageError
from spectrace.format.outfile import older_segment
from spectrace.format.reader import SUFFIX
from spectrace.format.replacing import hidden

F = TypeVar("F", bound=Callable[..., Any])

TRACE = click.Path(exists=True, readable=True, path_type=Path)
"""A trace: a file, or a directory of them that are one run."""


def json_option(what: str) -> Callable[[F], F]:
    """``--json``, for a command that a program might read."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what}.")


def out_option(*, required: bool = True, what: str = "Trace to write.") -> Callable[[F], F]:
    """``-o``."""
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option("-o", "--out", type=kind, required=required, metavar="OUT", help=what)


def overwrite_option(function: F) -> F:
    """``--overwrite``."""
    return click.option("--overwrite", is_flag=True, help="Replace OUT if it is there.")(function)


def check_out(out: Path, *, overwrite: bool, inputs: Iterable[Path] = ()) -> None:
    """Refuses to write where something is that must stay, or where nothing can be.

    Args:
        out: file to be written.
        overwrite: the person allowed to replace it.
        inputs: what is read meanwhile; OUT may be none of it, nor a file in a folder of it.

    Raises:
        UsageError: the sentence says which, and what to type.
    """
    name = shown(out)
    if out.name in ("", "-", ".."):
        raise UsageError(f"{name}: OUT must be the name of a file")
    if not out.parent.is_dir():
        raise UsageError(f"{name}: the folder {shown(out.parent)} does not exist")
    if not os.path.lexists(out):
        return
    if not stat.S_ISREG(out.lstat().st_mode):  # a link too: what it leads to may be a device
        raise UsageError(f"{name}: is no regular file, so it is not replaced; give another name")
    if not overwrite:
        raise UsageError(f"{name}: already there; --overwrite replaces it")
    if any(file.samefile(out) for given in inputs for file in _files_of(given)):
        raise UsageError(f"{name}: is what is read; give another name")


def _files_of(given: Path) -> Iterator[Path]:
    """The files that are read of an input: of a folder with traces those, of a model's folder all."""
    if not given.is_dir():
        files: Iterable[Path] = (given,)
    elif (given / "config.json").exists():
        files = given.rglob("*")
    else:
        traces = list(given.glob("*" + SUFFIX))
        files = (*traces, *map(older_segment, traces))
    return (file for file in files if file.is_file())


@contextmanager
def written_whole(out: Path, *, overwrite: bool, inputs: Iterable[Path] = ()) -> Iterator[Path]:
    """Lets a command write OUT so that it is there whole or not at all.

    Args:
        out: file to be written.
        overwrite: the person allowed to replace it.
        inputs: see `check_out`.

    Yields:
        A path beside OUT to write to; it gets OUT's name at the end, and is removed on a fault.

    Raises:
        UsageError: see `check_out`.
        OSError: it names OUT, which the person typed, not the file beside it.
        RecorderError: likewise.
    """
    check_out(out, overwrite=overwrite, inputs=inputs)
    beside = hidden(out, "new")
    try:
        yield beside
        beside.replace(out)
    except RecorderError as error:
        raise RecorderError(str(error).replace(beside.name, out.name)) from error
    except OSError as error:
        is_ours = error.filename is not None and os.fspath(error.filename) == str(beside)
        if is_ours or (error.filename is None and error.errno in _NO_ROOM):
            raise OSError(error.errno, error.strerror, str(out)) from error
        raise
    finally:
        beside.unlink(missing_ok=True)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What writing says without naming the file."""
