"""What `spectrace doctor` says of vLLM: whether it is here, and whether each hook fits, without importing it.

The table is that of hooks.py, so the answer is the one the plugin comes to later; only the class that a model
runner really has can differ.
"""

from __future__ import annotations

import os
from typing import Any

from spectrace_serving.doctor import described, environment_state, is_usable
from spectrace_serving.hooks import package_folder
from spectrace_vllm.hooks import FIX, KINDS, engine_version

PLUGINS = "VLLM_PLUGINS"


def examine() -> dict[str, Any]:
    """The state of this recorder: see `spectrace.cli.doctor` for the keys."""
    folder = package_folder("vllm")
    found: dict[str, Any] = {"engine": "vllm", "version": engine_version(), "hooks": [], "advice": []}
    if folder is None:
        found["advice"].append("vllm is not installed: pip install 'spectrace-tui[vllm]'")
        return found
    kinds = [[described(hook, kind.name, folder) for hook in kind.hooks] for kind in KINDS]
    found["hooks"] = [hook for hooks in kinds for hook in hooks]
    if not any(is_usable(hooks) for hooks in kinds):
        found["advice"].append(f"nothing would be recorded: {FIX}")
    state = environment_state("vllm", "vllm.general_plugins", PLUGINS, os.environ.get(PLUGINS))
    found["advice"] += state["advice"]
    if not found["advice"]:
        found["records"] = state["records"]
    return found
