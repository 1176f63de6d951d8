"""`spectrace view`: the door to the Textual app; without a terminal, the summary."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import spectrace
from spectrace.cli.arguments import TRACE, overwrite_option, written_whole
from spectrace.cli.output import print_lines, say
from spectrace.cli.stats import print_summary
from spectrace.errors import UsageError

if TYPE_CHECKING:
    from spectrace import Trace

PICTURE = (120, 40)
"""Columns and lines of a picture where COLUMNS and LINES do not say."""


@click.command("view")
@click.argument("path", metavar="TRACE", type=TRACE, required=False)
@click.option("--follow", is_flag=True, help="Show steps as they are recorded.")
@click.option(
    "--at", type=click.IntRange(min=0), metavar="STEP", help="Begin at this step, as steps numbers it."
)
@click.option("--first", is_flag=True, help="Begin at the first rejection.")
@click.option("--screen", default="", metavar="ID", help="Begin with this screen, such as overview.")
@click.option("--against", type=TRACE, metavar="TRACE", help="Compare with this trace: the screen diff.")
@click.option("--plain", is_flag=True, help="Print what the screen shows, for screen readers and pipes.")
@click.option(
    "--screenshot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT.svg",
    help="Save a picture of the screen; COLUMNS and LINES set its size.",
)
@overwrite_option
@click.option("--serve", is_flag=True, help="Show the viewer in browsers of this machine.")
@click.option("--port", type=click.IntRange(1, 65_535), default=8000, help="Port for --serve.")
@click.option("--keys", is_flag=True, help="Print every key with its id.")
def command(
    path: Path | None,
    follow: bool,
    at: int | None,
    first: bool,
    screen: str,
    against: Path | None,
    plain: bool,
    screenshot: Path | None,
    overwrite: bool,
    serve: bool,
    port: int,
    keys: bool,
) -> None:
    """Browse a trace in the terminal; ? in the viewer lists its keys.

    `spectrace TRACE` does the same. Where there is no terminal, prints what stats prints.
    """
    if keys:
        _print_keys()
        return
    if path is None:
        raise UsageError("which trace? spectrace view TRACE")
    if plain + serve + (screenshot is not None) > 1:
        raise UsageError("give one of --plain, --screenshot and --serve")
    _check_screen(screen)
    if against is not None:
        spectrace.open(against).close()  # a fault of it ends the command, as one of the first trace does
    with spectrace.open(path) as trace:
        if at is not None and at >= len(trace.steps):
            raise UsageError(f"--at {at:,}: the trace has {len(trace.steps):,} steps, from 0")
        others = () if against is None else (against,)
        screen = screen or ("diff" if others else "")
        if plain:
            _print_screen(trace, at, first, screen, others)
        elif screenshot is not None:
            with written_whole(screenshot, overwrite=overwrite, inputs=(path, *others)) as beside:
                _save_picture(trace, beside, at, first, screen, others)
        elif serve:
            _serve(path, at, first, screen, follow, port, others)
        elif is_terminal():
            open_viewer(trace, at=at, first=first, screen=screen, follow=follow, against=others)
        else:
            print_summary(trace)
            say(
                "No screen can be drawn here: shown is what spectrace stats prints; "
                "spectrace steps lists the steps, view --plain prints a screen."
            )


def open_viewer(
    trace: Trace,
    *,
    at: int | None = None,
    first: bool = False,
    screen: str = "",
    follow: bool = False,
    against: Sequence[Path] = (),
) -> None:
    """Runs the Textual app, which is loaded here and nowhere else."""
    from spectrace.tui.app import run

    run(trace, at=at, first=first, screen=screen, follow=follow, against=against)


def is_terminal() -> bool:
    """Whether the viewer can run here."""
    if "TEXTUAL_DRIVER" in os.environ:  # A web server speaks for the terminal.
        return True
    from spectrace.tui.terminal import places_text

    return places_text(os.environ) and all(s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr))


def _check_screen(name: str) -> None:
    if name:
        from spectrace.tui.plain import check_screen

        check_screen(name)


def _print_keys() -> None:
    from spectrace.tui.keymap import keymap_path, own_keys
    from spectrace.tui.keys import every_key, keys_text

    keys, complaint = own_keys(every_key(), keymap_path())
    click.echo(keys_text(keys), nl=False)
    say(complaint or f'Your own keys: lines such as hunt.first = "f,f5" in {keymap_path()}')


def _print_screen(trace: Trace, at: int | None, first: bool, screen: str, against: Sequence[Path]) -> None:
    from spectrace.tui.app import starting_row
    from spectrace.tui.loader import Loader
    from spectrace.tui.plain import plain_lines

    loader = Loader(trace, against)
    width = shutil.get_terminal_size((100, 24)).columns
    row = starting_row(loader, at=at, first=first)
    is_ascii = "utf" not in (sys.stdout.encoding or "").lower()
    print_lines(plain_lines(loader, screen, row, width, is_ascii=is_ascii))


def _save_picture(
    trace: Trace, out: Path, at: int | None, first: bool, screen: str, against: Sequence[Path]
) -> None:
    from spectrace.tui.app import screenshot, starting_row
    from spectrace.tui.loader import Loader

    sizes = (os.environ.get(name, "") for name in ("COLUMNS", "LINES"))
    columns, lines = (
        int(size) if size.isdecimal() and 0 < int(size) <= 500 else usual
        for size, usual in zip(sizes, PICTURE)
    )
    row = starting_row(Loader(trace), at=at, first=first)
    screenshot(trace, out, row=row, screen=screen, size=(columns, lines), against=against)


def _serve(
    path: Path, at: int | None, first: bool, screen: str, follow: bool, port: int, against: Sequence[Path]
) -> None:
    from spectrace.tui.app import serve

    options = [*(["--at", str(at)] if at is not None else []), *(["--first"] if first else [])]
    options += [*(["--screen", screen] if screen else []), *(["--follow"] if follow else [])]
    options += [word for other in against for word in ("--against", str(other))]
    say(f"http://127.0.0.1:{port} shows the trace; Ctrl-C ends it")
    serve(path, options, port=port)
