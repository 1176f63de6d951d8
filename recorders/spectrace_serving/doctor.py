"""What `spectrace doctor` says of a serving engine: is it here, does each hook fit, does the environment ask.

The engine's source is parsed, not run: importing it takes half a minute. Imports no engine and no torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from spectrace_serving.hooks import Hook
from spectrace_serving.settings import MAX_BYTES, OUT, examined

FLOOR = 16 << 20
"""Bytes of a flight recorder that hold ten headers of any model: maps of 64,000 tokens take 0.6 MB."""


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


def environment_state(engine: str, group: str, variable: str, allowed: str | None) -> dict[str, Any]:
    """What is to be done about the environment, as ``advice``, and what it asks for, as ``records``.

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
    settings, wrong = examined(os.environ)
    advice += wrong
    if not os.environ.get(OUT):
        advice.append(f"{OUT} is not set, so nothing is recorded: set it to a folder and start the engine")
    if settings is None:
        return {"advice": advice, "records": None}
    if reason := _unfit(settings.out):
        advice.append(f"{OUT}={settings.out}: {reason}")
    if settings.max_bytes is not None and settings.max_bytes < FLOOR:
        advice.append(
            f"{MAX_BYTES}={settings.max_bytes}: may be too little, and then nothing is recorded: it must "
            f"hold ten times the header, whose size is the model's; {FLOOR >> 20}M are enough"
        )
    return {"advice": advice, "records": f"{settings.out.absolute()}, {settings.sentence}"}


def _unfit(folder: Path) -> str | None:
    """Why no trace can be written there; the folder is made when an engine starts."""
    try:
        if folder.exists():
            return None if folder.is_dir() else "is no folder"
        above = next(parent for parent in folder.absolute().parents if parent.exists())
        return None if above.is_dir() else f"{above} is no folder"
    except OSError as error:
        return error.strerror or str(error)
