"""`spectrace diff`: two traces of the same prompts, what differs and where first."""

from __future__ import annotations

from pathlib import Path

import click

import spectrace
from spectrace.analysis.comparison import compare
from spectrace.cli.arguments import TRACE, json_option
from spectrace.cli.diff_text import text_of
from spectrace.cli.output import print_json, print_lines, progress, say, shown
from spectrace.errors import TraceError
from spectrace.format.text import visible


@click.command("diff")
@click.argument("one", metavar="A", type=TRACE)
@click.argument("other", metavar="B", type=TRACE)
@json_option("one JSON object")
def command(one: Path, other: Path, as_json: bool) -> None:
    """Compare two traces of the same prompts.

    Requests are paired by prompt, name or order, steps by committed length. Said are the first differing
    prompt, proposal, target pick, decision and committed token, whether rounding explains a text that
    parts, what differs in headers, weights, maps and tapped states, and the change of acceptance with its
    95 % interval. Behind a differing token of a text nothing of it is compared but acceptance.

    A directory is one run: its ranks, or the segments of a flight recorder. The exit code is 0 whether or
    not something differs, and 1 when nothing could be compared.
    """
    with spectrace.open(one) as a, spectrace.open(other) as b:
        with progress("reading", len(a) + len(b)) as show:
            found = compare(a, b, on_progress=show)
        if as_json:
            print_json({"a": [str(p) for p in a.paths], "b": [str(p) for p in b.paths], **found.to_mapping()})
        else:
            print_lines(text_of(found, a, b))
        for label, trace in (("A", a), ("B", b)):
            for problem in trace.problems:
                say(f"problem in {label}: {visible(problem)}")
        if found.alignment.problem is not None:
            raise TraceError(other, f"cannot be compared with {shown(one)}: {found.alignment.problem}")
