"""`spectrace import`: JSON lines, or what engines and tools already write, become a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, cast

import click

from spectrace.cli.arguments import out_option, overwrite_option, written_whole
from spectrace.cli.output import progress, say, shown
from spectrace.format.figures import count_of, number
from spectrace.format.jsonl import read_lines
from spectrace.format.text import visible
from spectrace.importing.sources import NAMES, SPECSPECS, import_parquet, import_stream
from spectrace.importing.specspecs import is_parquet


@click.command("import")
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@out_option()
@overwrite_option
@click.option("--from", "name", type=click.Choice(NAMES), help="Who wrote FILE; it tells by itself.")
def command(source: str, out: Path, overwrite: bool, name: str | None) -> None:
    """Make a trace of JSON lines, or of what an engine wrote; FILE - reads a pipe.

    JSON lines: one object a line; "record" names its kind: run, request, step, tokens, amend, reference, gap,
    end. A line that does not hold what it must is named with its field, and nothing is written.

    \b
    spectrace import responses.jsonl -o run.spectrace      # vLLM, SGLang, llama-server; AIPerf's records
    spectrace import server.log -o run.spectrace           # llama-server -lv 5
    spectrace import drafts-1-0.parquet -o run.spectrace   # specspecs
    """  # noqa: D301 (click wants a real backspace)
    size = None if source == "-" else Path(source).stat().st_size
    with (
        written_whole(out, overwrite=overwrite, inputs=[] if source == "-" else [Path(source)]) as beside,
        click.open_file(source, "rb") as stream,
        progress("importing", size) as show,
    ):
        if name == SPECSPECS or (source != "-" and name is None and is_parquet(Path(source))):
            found = import_parquet(Path(source), beside)
        else:
            lines = _told(read_lines(cast("BinaryIO", stream), source), show)
            found = import_stream(lines, beside, source=source, name=name)
    if found.unmeasured:
        say(f"{shown(source)}: {_unmeasured(found.unmeasured)}")
    out_name = shown(out)
    if found.num_silent:
        say(f"{shown(source)}: documents that say nothing about speculation: {number(found.num_silent)}")
    say(f"{out_name}: {number(found.num_steps)} steps; next: spectrace view {out_name}")


def _unmeasured(ended: Mapping[str, int]) -> str:
    """Responses without numbers, and how their texts ended."""
    reasons = ", ".join(
        f"{visible(reason, limit=40)} {number(count)}" for reason, count in list(ended.items())[:8]
    )
    why = ": the engine gives none for some texts that ended at a stop string" if "stop" in ended else ""
    left_out = count_of(sum(ended.values()), "response")
    return f'{left_out} left out, "metrics" is null (finish_reason {reasons}){why}'


def _told(lines: Iterable[bytes], show: Callable[[int], None]) -> Iterator[bytes]:
    """The same lines, with the bytes read so far shown now and then."""
    read = 0
    for at, line in enumerate(lines, 1):
        read += len(line)
        if at % 1000 == 0:
            show(read)
        yield line
