"""`spectrace repair`: whatever is whole in a damaged trace, in a new file."""

from __future__ import annotations

from pathlib import Path

import click

from spectrace.cli.arguments import json_option, out_option, overwrite_option, written_whole
from spectrace.cli.output import print_json, print_lines, progress, shown
from spectrace.format.figures import number
from spectrace.format.repair import RepairReport, repair
from spectrace.format.text import visible


@click.command("repair")
@click.argument("source", metavar="TRACE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@out_option()
@overwrite_option
@click.option("--compact", is_flag=True, help="Regroup and compress the steps: a sound trace gets smaller.")
@json_option("one JSON object")
def command(source: Path, out: Path, overwrite: bool, compact: bool, as_json: bool) -> None:
    """Save every whole step of a damaged trace in a new one; TRACE is never changed.

    Says how many steps are saved and how many are known to be lost.
    """
    with (
        written_whole(out, overwrite=overwrite, inputs=[source]) as beside,
        progress("repairing", source.stat().st_size) as show,
    ):
        report = repair(source, beside, compact=compact, on_progress=show)
    if as_json:
        print_json(_mapping(report))
    else:
        print_lines(_lines(report, source, out))


def _mapping(report: RepairReport) -> dict[str, object]:
    return {
        "steps": report.steps,
        "lost": report.lost,
        "skipped_bytes": report.skipped_bytes,
        "problems": list(report.problems),
        "is_cut": report.is_cut,
        "is_clean": report.is_clean,
    }


def _lines(report: RepairReport, source: Path, out: Path) -> list[str]:
    sizes = f"{number(source.stat().st_size)} -> {number(out.stat().st_size)} bytes"
    lines = [f"{shown(out)}: {number(report.steps)} whole steps, {sizes}"]
    if report.is_clean:
        return [*lines, "nothing was damaged"]
    return [
        *lines,
        f"known to be lost: {number(report.lost)} steps; skipped: {number(report.skipped_bytes)} bytes",
        *(["the end of the file is missing: how many steps it held is not known"] if report.is_cut else []),
        *(f"problem: {visible(problem)}" for problem in report.problems),
    ]
