"""What the command line says about itself, and what it costs to ask."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

import spectrace
from spectrace.cli import COMMANDS, program

if TYPE_CHECKING:
    from tests.cli.conftest import Run

NAMES = [name for commands in COMMANDS.values() for name in commands]
CONTEXT = click.Context(program)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_documented(run: Run, name: str) -> None:
    """Each command explains itself, and each of its options."""
    found = run(name, "--help")
    assert (found.code, found.err) == (0, "")
    command = program.get_command(CONTEXT, name)
    assert command is not None
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"


@pytest.mark.parametrize("name", NAMES)
def test_the_list_of_commands_says_what_the_command_says(name: str) -> None:
    """The one line in `--help`, which loads no command, agrees with the command's own first sentence."""
    command = program.get_command(CONTEXT, name)
    assert command is not None
    listed = next(commands[name] for commands in COMMANDS.values() if name in commands)
    assert listed == re.split(r"[.;:]", command.help or "")[0] + "."


def test_help_lists_commands_by_task(run: Run) -> None:
    """A newcomer sees what to do first, and every command once."""
    text = run("--help").out
    places = [text.index(f"\n{task}:") for task in COMMANDS]
    assert places == sorted(places)
    for name in NAMES:
        assert len(re.findall(rf"^  {name} ", text, re.MULTILINE)) == 1


def test_help_loads_no_command_and_nothing_heavy() -> None:
    """`spectrace --help` imports click, and neither a subcommand, numpy, Textual nor an engine."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "spectrace", "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    loaded = set(re.findall(r"\|\s*([\w.]+)$", done.stderr, re.MULTILINE))
    assert "click" in loaded
    rooms = {name for name in loaded if name.startswith("spectrace.")}
    assert rooms == {"spectrace.cli", "spectrace.errors"}
    packages = {name.partition(".")[0] for name in loaded}
    assert not packages & {"numpy", "msgpack", "textual", "rich", "torch", "transformers", "spectrace_demo"}


def test_version_is_the_packages(run: Run) -> None:
    """`--version` says what a bug report asks for."""
    assert run("--version").out == f"spectrace {spectrace.__version__}\n"


def test_no_arguments_print_the_help(run: Run) -> None:
    """Typing the name alone helps, and is a usage error as for any command with subcommands."""
    found = run()
    assert found.code == 2
    assert "Usage: spectrace" in found.out + found.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(run: Run, shell: str) -> None:
    """The script asks spectrace itself for what can follow."""
    found = run("completion", shell)
    assert found.code == 0
    assert "_SPECTRACE_COMPLETE" in found.out


def test_completion_offers_commands_and_files(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `spectrace s` come stats and steps; where no command can be meant files come, as for a path."""
    monkeypatch.setenv("_SPECTRACE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("COMP_WORDS", "spectrace s")
    assert run().out.split() == ["plain,stats", "plain,steps"]
    monkeypatch.setenv("COMP_WORDS", "spectrace ./ru")
    assert run().out.split() == ["file,./ru"]


def test_completion_offers_options_of_a_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `spectrace steps --l` comes --limit."""
    monkeypatch.setenv("_SPECTRACE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "spectrace steps --l")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run().out.split() == ["plain,--limit"]
