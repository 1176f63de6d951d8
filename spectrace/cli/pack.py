"""`spectrace pack`: the zip that is attached to an issue, with nothing private in it unless asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import spectrace
from spectrace.cli.arguments import TRACE, out_option, overwrite_option, written_whole
from spectrace.cli.output import print_json, print_lines, progress, say, shown
from spectrace.errors import UsageError
from spectrace.format.figures import number, size_of
from spectrace.format.text import visible
from spectrace.report.examples import Example, examples
from spectrace.report.packing import Packed, manifest, pack


def include_option(function: Any) -> Any:
    """``--include``, for every command whose output leaves the machine."""
    return click.option(
        "--include",
        multiple=True,
        type=click.Choice(["text", "paths"]),
        help="Keep what is removed by default: text (ids, texts, prompts), paths (names, settings).",
    )(function)


@click.command("pack")
@click.argument("traces", metavar="TRACE...", type=TRACE, nargs=-1, required=True)
@out_option(required=False, what="Zip to write.")
@overwrite_option
@include_option
@click.option(
    "--around", type=click.IntRange(min=0), metavar="STEP", help="Only this step and those near it."
)
@click.option("--request", metavar="NAME", help="Only the steps of this request.")
@click.option("--max-size", default="24MB", metavar="SIZE", help="Largest zip; 24MB by default.")
@click.option("--dry-run", is_flag=True, help="Write nothing; list field by field what would leave.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as one JSON object.")
def command(
    traces: tuple[Path, ...],
    out: Path | None,
    overwrite: bool,
    include: tuple[str, ...],
    around: int | None,
    request: str | None,
    max_size: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the zip that is attached to an issue.

    In it are a small trace, a report, and a list of what was removed. Token ids, texts, prompts, paths
    and names are removed by default; numbers stay, and the verdicts of rules
    that need ids are made before. SECURITY.md says what the rest can still tell.
    """
    included, limit = frozenset(include), _bytes(max_size)
    with spectrace.open(traces) as trace:
        if dry_run:
            found = list(examples(trace, included))
            if as_json:
                print_json({"fields": [item.to_mapping() for item in found]})
            else:
                print_lines(_dry(found))
            return
        if out is None:
            raise UsageError("-o OUT is missing: the zip to write; --dry-run writes nothing")
        with (
            written_whole(out, overwrite=overwrite, inputs=traces) as beside,
            progress("packing", len(trace.steps)) as show,
        ):
            done = pack(
                trace, beside, name=out.name, include=included, around=around, request=request,
                max_bytes=limit, on_progress=show,
            )  # fmt: skip
        for problem in trace.problems:
            say(f"problem: {visible(problem)}")
    if as_json:
        print_json({"size": done.size, **manifest(done.redacted, included)})
    else:
        print_lines(_lines(done, out))


def _bytes(text: str) -> int:
    size = size_of(text)
    if size is None:
        raise UsageError(f"--max-size {visible(text, limit=40)}: a size such as 24MB or 900kB is needed")
    return size


def _lines(done: Packed, out: Path) -> Iterator[str]:
    redacted = done.redacted
    part = "" if redacted.steps == redacted.source_steps else f" of {number(redacted.source_steps)}"
    yield f"{shown(out)}: {number(redacted.steps)}{part} steps, {number(done.size)} bytes"
    yield f"verdicts bound to the trace with sha256 {redacted.source_sha256}"
    if "text" in done.include:
        yield "It holds texts and token ids, as asked for with --include text."
    else:
        yield "Removed: token ids, texts, prompts, paths and names; manifest.json in it lists every field."
    names = [(name, short) for name, short in redacted.requests.items() if name != short]
    for name, short in names[:8]:
        yield f"{visible(short, limit=60)} is {visible(name, limit=60)}"
    if len(names) > 8:
        yield f"... and {number(len(names) - 8)} more requests"


def _dry(found: list[Example]) -> Iterator[str]:
    yield "Nothing was written. What would leave this machine, field by field:"
    yield ""
    rows = [
        [visible(i.path), i.action, _cell(i.before), _cell(i.after), visible(i.note, limit=60)] for i in found
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(3)] if rows else []
    for row in rows:
        yield "  ".join(
            [*(c.ljust(w) for c, w in zip(row, widths)), f"-> {row[3]}", f"({row[4]})" if row[4] else ""]
        ).rstrip()


def _cell(value: Any) -> str:
    return "-" if value is None else visible(json.dumps(value, default=str), limit=34)
