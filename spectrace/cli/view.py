"""`spectrace view`: the door to the Textual app; without a terminal, the summary."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

import spectrace
from spectrace.cli.arguments import TRACE
from spectrace.cli.output import say
from spectrace.cli.stats import print_summary
from spectrace.errors import UsageError

if TYPE_CHECKING:
    from spectrace import Trace


@click.command("view")
@click.argument("path", metavar="TRACE", type=TRACE)
@click.option("--follow", is_flag=True, help="Show steps as they are recorded.")
@click.option(
    "--at", type=click.IntRange(min=0), metavar="STEP", help="Begin at this step, as steps numbers it."
)
def command(path: Path, follow: bool, at: int | None) -> None:
    """Browse a trace in the terminal; ? in the viewer lists its keys.

    `spectrace TRACE` does the same. Where there is no terminal, prints what stats prints.
    """
    with spectrace.open(path) as trace:
        if at is not None and at >= len(trace.steps):
            raise UsageError(f"--at {at:,}: the trace has {len(trace.steps):,} steps, from 0")
        if not is_terminal():
            print_summary(trace)
            say("This is no terminal: shown is what spectrace stats prints; spectrace steps lists the steps.")
            return
        open_viewer(trace, at=at, follow=follow)


def open_viewer(trace: Trace, *, at: int | None = None, follow: bool = False) -> None:
    """Runs the Textual app, which is loaded here and nowhere else."""
    from spectrace.tui.app import run

    run(trace, at=at, follow=follow)


def is_terminal() -> bool:
    """Whether the viewer can run here."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    can_place = os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    return can_place and all(stream.isatty() for stream in streams)
