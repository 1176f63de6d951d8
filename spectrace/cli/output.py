"""What a command says: data to stdout, talk and progress to stderr.

Owns tables, JSON and the progress bar. Chooses no exit code and reads no trace.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from spectrace.format.jsonl import json_line
from spectrace.format.text import visible

_PATIENCE_S = 1.0
_BATCH = 200
"""Lines handed to stdout in one piece when it is no terminal."""


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines as they come; in batches into a file or a pipe, where a call per line would cost most."""
    size = 1 if sys.stdout.isatty() else _BATCH
    batch: list[str] = []
    for line in lines:
        batch.append(line)
        if len(batch) >= size:
            sys.stdout.write("\n".join(batch) + "\n")
            batch.clear()
    if batch:
        sys.stdout.write("\n".join(batch) + "\n")


def print_json(value: Mapping[str, Any]) -> None:
    """Prints one JSON object in ASCII; a number that JSON lacks is a text, as in JSON lines."""
    click.echo(json.dumps(json.loads(json_line(value)), indent=2))


def say(sentence: str) -> None:
    """Tells the person something that is not data."""
    click.echo(sentence, err=True)


def has_colour() -> bool:
    """Whether stdout shows colour and nobody asked for none."""
    context = click.get_current_context(silent=True)
    chosen = None if context is None else context.color
    return sys.stdout.isatty() if chosen is None else chosen


def shown(path: str | Path) -> str:
    """A path as it is printed: control characters as escapes, a backslash as it is."""
    return visible(os.fspath(path)).replace("\\\\", "\\")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table; the first column is text, the others are numbers.

    >>> list(table(["request", "steps"], [["r0", "12"]]))
    ['request  steps', 'r0          12']
    """
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for first, *others in [heads, *rows]:
        cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()


@contextmanager
def progress(label: str, length: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, silent unless that is a terminal, and for what is done within a second.

    Args:
        label: what is going on.
        length: how much there is to do; None or 0 when nobody knows.

    Yields:
        A function to call with how much has been done so far.
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    begin = time.monotonic()
    with ExitStack() as stack:
        bar: Any = None

        def show(done: int) -> None:
            nonlocal bar
            if bar is None and time.monotonic() - begin < _PATIENCE_S:
                return
            if not length:
                bar = bar or stack.callback(click.echo, err=True)
                click.echo(f"\r{label}  {done:,}", nl=False, err=True)
                return
            bar = bar or stack.enter_context(click.progressbar(length=length, label=label, file=sys.stderr))
            bar.update(done - bar.pos)

        yield show
        if length:
            show(length)
