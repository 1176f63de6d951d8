"""Arguments and options that several commands share, and what they promise about files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from spectrace.cli.output import shown
from spectrace.errors import UsageError

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


def check_out(out: Path, *, overwrite: bool, source: Path | None = None) -> None:
    """Refuses to write where something is, or where nothing can be.

    Args:
        out: file to be written.
        overwrite: the person allowed to replace it.
        source: the file read meanwhile, which may not be OUT.

    Raises:
        UsageError: the sentence says which of the two, and what to type.
    """
    name = shown(out)
    if out.exists() and not overwrite:
        raise UsageError(f"{name}: already there; --overwrite replaces it")
    if source is not None and out.exists() and source.exists() and out.samefile(source):
        raise UsageError(f"{name}: is what is read; give another name")
    if not out.name:
        raise UsageError("OUT: a file is needed, not a folder")
    if not out.parent.is_dir():
        raise UsageError(f"{name}: the folder {shown(out.parent)} does not exist")


@contextmanager
def written_whole(out: Path, *, overwrite: bool, source: Path | None = None) -> Iterator[Path]:
    """Lets a command write OUT so that it is there whole or not at all.

    Args:
        out: file to be written.
        overwrite: the person allowed to replace it.
        source: the file read meanwhile, which may not be OUT.

    Yields:
        A path beside OUT to write to; it gets OUT's name at the end, and is removed on a fault.

    Raises:
        UsageError: see `check_out`.
    """
    check_out(out, overwrite=overwrite, source=source)
    beside = out.with_name(f".{out.name}.{os.getpid()}.new")
    try:
        yield beside
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)
