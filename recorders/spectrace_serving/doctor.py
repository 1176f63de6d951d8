"""What `spectrace doctor` says of a serving engine: is it here, does each hook fit, does the environment ask.

The engine's source is parsed, not run: importing it takes half a minute. Imports no engine and no torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from spectrace.errors import UsageError
from spectrace_serving.hooks import Hook
from spectrace_serving.settings import OUT, from_environment


def described(hook: Hook, where: str, folder: Path) -> dict[str, Any]:
    """One hook, in the keys of `spectrace.cli.doctor`.

    Args:
        hook: what is expected.
        where: which of the engine's runners or methods pass it.
        folder: of the engine's package.
    """
    problem = hook.problem(folder)
    found: dict[str, Any] = {
        "runner": where,
        "name": hook.title,
        "needed": hook.is_needed,
        "fits": problem is None,
    }
    return found if problem is None else found | {"problem": problem, "loses": hook.loses}


def is_usable(hooks: Iterable[dict[str, Any]]) -> bool:
    """Whether all that are needed fit."""
    return all(hook["fits"] for hook in hooks if hook["needed"])


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
