"""What `spectrace doctor` says of SGLang: whether it is here and each hook fits, without importing it.

SGLang's source is parsed, not run: importing it takes half a minute. The table is that of hooks.py, which the
plugin asks as well.
"""

from __future__ import annotations

import os
from typing import Any

from spectrace_serving.source import settings_advice
from spectrace_sglang.hooks import FIX, HOOKS, engine_folder, engine_version

PLUGINS = "SGLANG_PLUGINS"


def examine() -> dict[str, Any]:
    """The state of this recorder: see `spectrace.cli.doctor` for the keys."""
    folder = engine_folder()
    found: dict[str, Any] = {"engine": "sglang", "version": engine_version(), "hooks": [], "advice": []}
    if folder is None:
        found["advice"].append("sglang is not installed: pip install sglang, beside spectrace-tui")
        return found
    for hook in HOOKS:
        problem = hook.problem(folder)
        described: dict[str, Any] = {
            "runner": hook.methods,
            "name": hook.title,
            "needed": hook.is_needed,
            "fits": problem is None,
        }
        if problem is not None:
            described |= {"problem": problem, "loses": hook.loses}
        found["hooks"].append(described)
    if any(hook["needed"] and not hook["fits"] for hook in found["hooks"]):
        found["advice"].append(f"nothing would be recorded: {FIX}")
    # An empty variable lets SGLang load every plugin.
    allowed = os.environ.get(PLUGINS) or None
    found["advice"] += settings_advice("sglang", "sglang.srt.plugins", PLUGINS, allowed)
    return found
