"""`spectrace report`: what goes into an issue, as Markdown or as one HTML file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

import spectrace
from spectrace.analysis.diagnosis import diagnose
from spectrace.cli.arguments import TRACE, check_out, out_option, overwrite_option, written_whole
from spectrace.cli.output import print_lines, progress, say, shown
from spectrace.cli.pack import include_option
from spectrace.errors import UsageError
from spectrace.format.figures import number
from spectrace.format.text import visible
from spectrace.report.document import Document, document
from spectrace.report.html import html
from spectrace.report.markdown import markdown
from spectrace.report.packing import removed_lines
from spectrace.report.plots import PlotsMissing, plots
from spectrace.report.redacting import redact


@click.command("report")
@click.argument("traces", metavar="TRACE...", type=TRACE, nargs=-1, required=True)
@out_option(what="File to write: OUT.md or OUT.html.")
@overwrite_option
@include_option
def command(traces: tuple[Path, ...], out: Path, overwrite: bool, include: tuple[str, ...]) -> None:
    """Write what goes into an issue, as Markdown or HTML.

    What ran, the numbers, the diagnosis, the first divergent steps, and what could not be checked.
    OUT.md fits into one issue, OUT.html opens from the disk and has plots (they need the extra
    `report`).
    What pack removes from a trace by default is in neither.
    """
    is_page = out.suffix.lower() in (".html", ".htm")
    if not is_page and out.suffix.lower() not in (".md", ".markdown"):
        raise UsageError(f"{shown(out)}: a report is written as .md or .html")
    check_out(out, overwrite=overwrite, inputs=traces)
    with spectrace.open(traces) as trace, progress("reading", len(trace.steps)) as show:
        found = diagnose(trace, on_progress=show)
        with tempfile.TemporaryDirectory(prefix="spectrace-") as folder:
            # What is reported is what pack would send, so that it can say no more.
            path = Path(folder) / "trace.spectrace"
            done = redact(trace, path, found, include=frozenset(include))
            with spectrace.open(path) as packed:
                report = document(packed, name=None, removed=list(removed_lines(done, frozenset(include))))
        for problem in trace.problems:
            say(f"problem: {visible(problem)}")
    text = _page(report) if is_page else markdown(report)
    with written_whole(out, overwrite=overwrite, inputs=traces) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")
    size = number(len(text))
    print_lines([f"{shown(out)}: {size} characters" + ("" if is_page else " of 65,536 that an issue takes")])


def _page(report: Document) -> str:
    try:
        return html(report, plots(report))
    except PlotsMissing as error:
        say(f"without plots: {error}")
        return html(report)
