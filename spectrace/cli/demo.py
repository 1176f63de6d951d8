"""`spectrace demo`: a real run of the bundled tiny models, recorded here and now, with no network."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

import spectrace
import spectrace_demo
from spectrace.cli.arguments import check_out, out_option, overwrite_option
from spectrace.cli.output import print_lines
from spectrace.cli.record import outcome, run
from spectrace.cli.stats import print_summary
from spectrace.cli.view import is_terminal, open_viewer


@click.command("demo")
@out_option(required=False, what="Trace to write instead of a temporary file.")
@overwrite_option
@click.option("--no-view", is_flag=True, help="Do not open the viewer.")
def command(out: Path | None, overwrite: bool, no_view: bool) -> None:
    """Record a real run of the bundled tiny models and show it.

    Prints the summary and opens the viewer; the summary alone where there is no terminal.
    """
    if out is None:
        out = Path(tempfile.mkdtemp(prefix="spectrace-")) / "demo.spectrace"
    check_out(out, overwrite=overwrite)
    run(
        "transformers",
        out,
        spectrace_demo.prompts(),
        target=spectrace_demo.target_path(),
        draft=spectrace_demo.draft_path(),
        max_new_tokens=96,
        device="cpu",
        overwrite=overwrite,
    )
    with spectrace.open(out) as trace:
        print_summary(trace)
        print_lines(["", *outcome(trace)])
        if is_terminal() and not no_view:
            open_viewer(trace)
