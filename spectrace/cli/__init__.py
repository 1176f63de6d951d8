"""The command `spectrace`: parses, finds the subcommand, turns every outcome into an exit code.

One file per subcommand beside this one, each loaded only when it is called: `--help` needs click alone.
Exit codes are chosen here: 0 fine, 1 the trace, the model or the recorder is at fault, 2 usage, 130 Ctrl-C.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from spectrace import __version__
from spectrace.errors import SpectraceError, UsageError

COMMANDS: dict[str, dict[str, str]] = {
    "Record": {
        "demo": "Record a real run of the bundled tiny models and show it.",
        "record": "Run a target and a draft of your own, and record it.",
        "doctor": "Say what would be recorded here, what does not fit, and what to do.",
    },
    "Read": {
        "view": "Browse a trace in the terminal.",
        "stats": "Print counts and every named metric of a run.",
        "steps": "Print one line per step.",
        "diagnose": "Name the cause of a bad acceptance, or clear the causes it is not.",
        "diff": "Compare two traces of the same prompts.",
        "check": "Judge a draft checkpoint without running it.",
        "probe": "Run a draft alone, and count how often it is right.",
    },
    "Exchange": {
        "import": "Make a trace of JSON lines, or of what an engine wrote.",
        "export": "Print a trace as JSON lines.",
        "report": "Write what goes into an issue, as Markdown or HTML.",
        "pack": "Write the zip that is attached to an issue.",
        "repair": "Save every whole step of a damaged trace in a new one.",
    },
    "Shell": {
        "completion": "Print the completion script of your shell.",
    },
}
"""Task -> command -> first line of its help; the command is `command` in the module of its name."""

_MODULES = {"import": "import_"}
"""Command -> module, where the name is a word of Python."""

_SUMMARIES = {name: line for commands in COMMANDS.values() for name, line in commands.items()}


class _PipeClosed(Exception):
    """Whoever read our output wants no more, such as `head`."""


class Program(click.Group):
    """Finds subcommands by `COMMANDS`, and takes a path for `view`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the help."""
        return list(_SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads the module of one command."""
        if cmd_name not in _SUMMARIES:
            return None
        module = import_module(f"spectrace.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Opens the viewer for a path; names the nearest command for a misspelt one."""
        name = args[0]
        if name not in _SUMMARIES and not ctx.resilient_parsing:
            if name.endswith(".spectrace") or Path(name).exists():
                return super().resolve_command(ctx, ["view", *args])
            near = get_close_matches(name, _SUMMARIES, n=1)
            hint = f"did you mean {near[0]}" if near else "spectrace --help lists the commands"
            raise click.UsageError(f"neither a command nor a trace: {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by task."""
        for task, commands in COMMANDS.items():
            with formatter.section(task):
                formatter.write_dl(list(commands.items()), col_max=12)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offers commands without loading them, and files, since a path opens the viewer."""
        commands = [
            CompletionItem(name, help=line)
            for name, line in _SUMMARIES.items()
            if name.startswith(incomplete)
        ]
        options = super(click.Group, self).shell_complete(ctx, incomplete)
        # bash takes either words or files: files only where no word can be meant.
        return [*commands, *options] or [CompletionItem(incomplete, type="file")]

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; a closed pipe is told apart from a fault."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _PipeClosed from None


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="COMMAND [ARGS]...",
    epilog="A path as the first argument opens the viewer: spectrace run.spectrace",
)
@click.version_option(__version__, message="spectrace %(version)s")
@click.pass_context
def program(ctx: click.Context) -> None:
    """Record what speculative decoding did, step by step, and read it in a terminal."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: without the program's name; those of this process by default.

    Returns:
        The exit code.
    """
    _open_closed_streams()
    with _signals_as_exits():
        code = _run(arguments)
        try:
            sys.stdout.flush()
        except (OSError, ValueError):  # Said already, or whoever reads has gone.
            _discard_output()
        return code


def _run(arguments: Sequence[str] | None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a token's text gets an escape, not an exception.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = program.main(arguments, prog_name="spectrace", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except SpectraceError as error:
        click.echo(f"spectrace: {error}", err=True)
        return 2 if isinstance(error, UsageError) else 1
    except (_PipeClosed, BrokenPipeError):
        _discard_output()
        return 0
    except OSError as error:
        where = "" if error.filename is None else f"{click.format_filename(error.filename)}: "
        click.echo(f"spectrace: {where}{error.strerror or error}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    return code if isinstance(code, int) else 0


def _show(error: click.ClickException) -> None:
    """Prints what click says of a wrong argument, which may hold anything that a file name can."""
    from spectrace.format.text import visible

    buffer = io.StringIO()
    error.show(buffer)
    for line in buffer.getvalue().splitlines():
        click.echo(visible(line).replace("\\\\", "\\"), err=True)


def _open_closed_streams() -> None:
    """A standard stream that the caller closed is the null device: what opens next must not be it."""
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


@contextlib.contextmanager
def _signals_as_exits() -> Iterator[None]:
    """Lets an end from outside clean up: a half-written file goes, a terminal is put right."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    ours = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ours = []
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _discard_output() -> None:
    """Sends what Python still holds for stdout nowhere, so that its last flush does not fail too."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
