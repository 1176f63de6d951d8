"""What `spectrace doctor` says of SGLang: whether it is here and each hook fits, without importing it.

The table is that of hooks.py, which the plugin asks as well.
"""

from __future__ import annotations

import os
from typing import Any

from spectrace_serving.doctor import described, environment_state, is_usable
from spectrace_serving.hooks import package_folder
from spectrace_sglang.hooks import FIX, HOOKS, engine_version

PLUGINS = "SGLANG_PLUGINS"


def examine() -> dict[str, Any]:
    """The state of this recorder: see `spectrace.cli.doctor` for the keys."""
    folder = package_folder("sglang")
    found: dict[str, Any] = {"engine": "sglang", "version": engine_version(), "hooks": [], "advice": []}
    if folder is None:
        found["advice"].append("sglang is not installed: pip install 'spectrace-tui[sglang]'")
        return found
    found["hooks"] = [described(hook, hook.methods, folder) for hook in HOOKS]
    if not is_usable(found["hooks"]):
        found["advice"].append(f"nothing would be recorded: {FIX}")
    # An empty variable lets SGLang load every plugin.
    allowed = os.environ.get(PLUGINS) or None
    state = environment_state("sglang", "sglang.srt.plugins", PLUGINS, allowed)
    found["advice"] += state["advice"]
    if not found["advice"]:
        found["records"] = state["records"]
    return found
