"""`spectrace export`: a trace as JSON lines, which `import` turns into the same trace again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

import spectrace
from spectrace.cli.arguments import TRACE, out_option, overwrite_option, written_whole
from spectrace.cli.output import print_lines, progress, say
from spectrace.format.jsonl import export_lines
from spectrace.format.text import visible


@click.command("export")
@click.argument("path", metavar="TRACE", type=TRACE)
@out_option(required=False, what="File to write instead of stdout.")
@overwrite_option
def command(path: Path, out: Path | None, overwrite: bool) -> None:
    """Print a trace as JSON lines: the run, its requests, its steps, one object a line."""
    with spectrace.open(path) as trace:
        if out is None:
            print_lines(export_lines(trace))
        else:
            with (
                written_whole(out, overwrite=overwrite, inputs=[path]) as beside,
                progress("exporting", len(trace.steps)) as show,
                beside.open("x", newline="\n") as file,
            ):
                file.writelines(line + "\n" for line in _counted(export_lines(trace), show))
        for problem in trace.problems:
            say(f"problem: {visible(problem)}")


def _counted(lines: Iterable[str], show: Callable[[int], None]) -> Iterator[str]:
    """The same lines, with their number shown now and then."""
    for number, line in enumerate(lines):
        if number % 1000 == 0:
            show(number)
        yield line
