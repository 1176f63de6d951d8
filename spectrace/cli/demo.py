"""`spectrace demo`: a real run of the bundled tiny models, recorded here and now, with no network."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

import spectrace
import spectrace_demo
from spectrace.cli.arguments import check_out, out_option, overwrite_option
from spectrace.cli.engines import EAGLE3, TRANSFORMERS
from spectrace.cli.output import print_lines
from spectrace.cli.record import run
from spectrace.cli.record_text import outcome
from spectrace.cli.stats import print_summary
from spectrace.cli.view import is_terminal, open_viewer


@click.command("demo")
@out_option(required=False, what="Trace to write instead of a temporary file.")
@overwrite_option
@click.option("--no-view", is_flag=True, help="Do not open the viewer.")
def command(out: Path | None, overwrite: bool, no_view: bool) -> None:
    """Record a real run of the bundled tiny models and show it.

    Prints the summary and opens the viewer; the summary alone where there is no terminal. A second trace
    beside it, OUT-eagle3, holds the same target with its EAGLE-3 head.
    """
    if out is None:
        out = Path(tempfile.mkdtemp(prefix="spectrace-")) / "demo.spectrace"
    second = out.with_name(f"{out.stem}-eagle3{out.suffix}")
    for path in (out, second):
        check_out(path, overwrite=overwrite)
    # Models this small run fastest on one thread, by far on a busy machine; torch reads this when loaded.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    prompts, target = spectrace_demo.prompts(), spectrace_demo.target_path()
    options = {"target": target, "max_new_tokens": 96, "device": "cpu", "overwrite": overwrite}
    run(TRANSFORMERS, out, prompts, draft=spectrace_demo.draft_path(), **options)
    run(EAGLE3, second, prompts[:3], draft=spectrace_demo.eagle3_path(), reference=True, **options)
    with spectrace.open(second) as trace:
        eagle3 = outcome(trace)[:2]
    with spectrace.open(out) as trace:
        print_summary(trace)
        print_lines(["", "the same target with its EAGLE-3 head:", *eagle3, "", *outcome(trace)])
        if is_terminal() and not no_view:
            open_viewer(trace)
