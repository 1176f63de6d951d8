"""Whether an engine's functions are what a recorder expects, read from its source: importing it takes long.

Also what the environment lacks for a recorder to run. Imports no engine and no torch.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from spectrace.errors import UsageError
from spectrace_serving.settings import OUT, from_environment


def parameters_in(file: Path, cls: str | None, name: str) -> list[str] | None:
    """Names of a function's parameters, of a method without self; None where there is no such function.

    Args:
        file: the module's source.
        cls: the class that defines it; None for a function of the module.
        name: of the function.
    """
    try:
        body: list[ast.stmt] = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return None
    if cls is not None:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == cls), [])
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            return names if cls is None else names[1:]
    return None


def misfit(name: str, expected: Sequence[str], found: Sequence[str] | None) -> str | None:
    """What is wrong with a function, as a sentence; None where it fits.

    Args:
        name: of the function, with its class.
        expected: names of its first parameters.
        found: names of its parameters; None where there is no such function.
    """
    if found is None:
        return f"{name} is not there"
    if tuple(found[: len(expected)]) != tuple(expected):
        return f"{name} takes ({', '.join(found)}), expected ({', '.join(expected)}, ..)"
    return None


def settings_advice(engine: str, group: str, variable: str, allowed: str | None) -> list[str]:
    """What is to be done about the environment.

    Args:
        engine: as the advice names it.
        group: of entry points by which the engine finds its plugins.
        variable: of the environment that names the plugins to be loaded.
        allowed: what it says; None where all are.
    """
    advice = []
    if not any(entry.name == "spectrace" for entry in entry_points(group=group)):
        advice.append(f"the plugin is not registered: install spectrace-tui where {engine} is installed")
    if allowed is not None and "spectrace" not in [name.strip() for name in allowed.split(",")]:
        advice.append(f"{variable} leaves the plugin out: add spectrace to it")
    try:
        settings = from_environment(os.environ)
    except UsageError as error:
        return [*advice, str(error)]
    if settings is None:
        advice.append(f"{OUT} is not set, so nothing is recorded: set it to a folder and start {engine}")
    elif settings.out.exists() and not settings.out.is_dir():
        advice.append(f"{OUT}={settings.out}: is no folder")
    return advice
