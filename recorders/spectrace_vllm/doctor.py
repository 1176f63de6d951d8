"""What `spectrace doctor` says of vLLM: whether it is here, and whether each hook fits, without importing it.

vLLM's source is parsed, not run: importing it takes half a minute. The table is that of hooks.py, so the
answer is the one the plugin comes to later; only the class that a model runner really has can differ.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spectrace.errors import UsageError
from spectrace_vllm.hooks import FIX, KINDS, Hook, RunnerKind, engine_version, misfit
from spectrace_vllm.settings import OUT, from_environment

PLUGINS = "VLLM_PLUGINS"


def examine() -> dict[str, Any]:
    """The state of this recorder: see `spectrace.cli.doctor` for the keys."""
    spec = find_spec("vllm")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent
    found: dict[str, Any] = {"engine": "vllm", "version": engine_version(), "hooks": [], "advice": []}
    if folder is None:
        found["advice"].append("vllm is not installed: pip install 'spectrace-tui[vllm]'")
        return found
    for kind in KINDS:
        found["hooks"] += [_hook(folder, kind, hook) for hook in kind.hooks]
    if all(_is_unusable(found["hooks"], kind) for kind in KINDS):
        found["advice"].append(f"nothing would be recorded: {FIX}")
    found["advice"] += _settings_advice()
    return found


def _hook(folder: Path, kind: RunnerKind, hook: Hook) -> dict[str, Any]:
    problem = misfit(hook, _parameters(folder / hook.module, hook.cls, hook.name))
    described: dict[str, Any] = {
        "runner": kind.name,
        "name": f"{hook.cls}.{hook.name}",
        "needed": hook.is_needed,
        "fits": problem is None,
    }
    if problem is not None:
        described |= {"problem": problem, "loses": hook.loses}
    return described


def _is_unusable(hooks: Sequence[dict[str, Any]], kind: RunnerKind) -> bool:
    return any(hook["runner"] == kind.name and hook["needed"] and not hook["fits"] for hook in hooks)


def _parameters(file: Path, cls: str, name: str) -> list[str] | None:
    """Names of a method's parameters without self; None where there is no such method."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError):
        return None
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == cls:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == name:
                    return [argument.arg for argument in method.args.args[1:]]
    return None


def _settings_advice() -> list[str]:
    """What is to be done about the environment."""
    advice = []
    if not any(entry.name == "spectrace" for entry in entry_points(group="vllm.general_plugins")):
        advice.append("the plugin is not registered: install spectrace-tui where vllm is installed")
    allowed = os.environ.get(PLUGINS)
    if allowed is not None and "spectrace" not in allowed.split(","):
        advice.append(f"{PLUGINS} leaves the plugin out: add spectrace to it")
    try:
        settings = from_environment(os.environ)
    except UsageError as error:
        return [*advice, str(error)]
    if settings is None:
        advice.append(f"{OUT} is not set, so nothing is recorded: set it to a folder and start vllm")
    elif settings.out.exists() and not settings.out.is_dir():
        advice.append(f"{OUT}={settings.out}: is no folder")
    return advice
