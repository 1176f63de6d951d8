"""What `spectrace doctor` says of vLLM: whether it is here, and whether each hook fits, without importing it.

vLLM's source is parsed, not run: importing it takes half a minute. The table is that of hooks.py, so the
answer is the one the plugin comes to later; only the class that a model runner really has can differ.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spectrace_serving.source import parameters_in, settings_advice
from spectrace_vllm.hooks import FIX, KINDS, Hook, RunnerKind, engine_version, misfit

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
    found["advice"] += settings_advice("vllm", "vllm.general_plugins", PLUGINS, os.environ.get(PLUGINS))
    return found


def _hook(folder: Path, kind: RunnerKind, hook: Hook) -> dict[str, Any]:
    problem = misfit(hook, parameters_in(folder / hook.module, hook.cls, hook.name))
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
