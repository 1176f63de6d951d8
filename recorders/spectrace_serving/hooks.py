"""What a function that is hooked must look like, read from an engine's source: importing it takes long.

A recorder keeps a table of these, which the plugin asks before anything is hooked, and `spectrace doctor` as
well. Imports no engine and no torch, and hooks nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One function of an engine that is wrapped."""

    name: str
    module: str
    """Where the engine defines it, with dots, below the package."""
    cls: str | None
    """The class that defines it; None for a function of the module."""
    parameters: tuple[str, ...]
    """Names of its first parameters, in order, without self."""
    loses: str
    """What a trace lacks without it."""
    is_needed: bool = False
    """Without it nothing is recorded."""

    @property
    def title(self) -> str:
        """Name with its class."""
        return self.name if self.cls is None else f"{self.cls}.{self.name}"

    def misfit(self, found: Sequence[str] | None) -> str | None:
        """What is wrong with a function, as a sentence; None where it fits.

        Args:
            found: names of its parameters without self; None where there is no such function.
        """
        if found is None:
            return f"{self.title} is not there"
        if tuple(found[: len(self.parameters)]) != self.parameters:
            return f"{self.title} takes ({', '.join(found)}), expected ({', '.join(self.parameters)}, ..)"
        return None

    def problem(self, folder: Path) -> str | None:
        """What does not fit in an installed engine, as a sentence; None where it fits.

        Args:
            folder: of the engine's package.
        """
        file = folder.joinpath(*self.module.split(".")).with_suffix(".py")
        return self.misfit(parameters_in(file, self.cls, self.name))


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


def package_folder(package: str) -> Path | None:
    """Folder of an engine's package, found without importing it; None where it is not installed."""
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def installed_version(*distributions: str) -> str | None:
    """Version of the first of some distributions that is installed."""
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def fix(title: str, extra: str) -> str:
    """What is to be done where a hook does not fit.

    >>> fix("vLLM", "vllm")
    'install a version of vLLM that fits (pip install spectrace-tui[vllm]), or a newer spectrace-tui'
    """
    return (
        f"install a version of {title} that fits (pip install spectrace-tui[{extra}]), "
        "or a newer spectrace-tui"
    )
