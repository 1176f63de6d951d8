"""`spectrace import`: JSON lines, from a file or from a pipe, become a trace."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, cast

import click

from spectrace.cli.arguments import out_option, overwrite_option, written_whole
from spectrace.cli.output import progress, say, shown
from spectrace.format.figures import number
from spectrace.format.jsonl import import_lines, read_lines


@click.command("import")
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@out_option()
@overwrite_option
def command(source: str, out: Path, overwrite: bool) -> None:
    """Make a trace of JSON lines; FILE - reads them from a pipe.

    One object a line; "record" names its kind: run, request, step, tokens, amend, reference, gap, end. A line
    that does not hold what it must is named with its field, and nothing is written.
    """
    size = None if source == "-" else Path(source).stat().st_size
    with (
        written_whole(out, overwrite=overwrite, inputs=[] if source == "-" else [Path(source)]) as beside,
        click.open_file(source, "rb") as stream,
        progress("importing", size) as show,
    ):
        lines = read_lines(cast("BinaryIO", stream), source)
        steps = import_lines(lines, beside, source=source, on_progress=show)
    name = shown(out)
    say(f"{name}: {number(steps)} steps; next: spectrace view {name}")
