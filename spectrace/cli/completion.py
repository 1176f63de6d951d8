"""`spectrace completion`: the script that teaches a shell our commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of your shell.

    \b
    bash   eval "$(spectrace completion bash)"         in ~/.bashrc
    zsh    eval "$(spectrace completion zsh)"          in ~/.zshrc
    fish   spectrace completion fish > ~/.config/fish/completions/spectrace.fish
    """  # noqa: D301 (click wants a real backspace)
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"this click knows no completion for {shell}")
    program = ctx.find_root().command
    click.echo(found(program, {}, "spectrace", "_SPECTRACE_COMPLETE").source())
