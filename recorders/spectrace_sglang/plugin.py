"""The entry point `sglang.srt.plugins`: SGLang calls `register` in every process it starts.

Only schedulers run models. In one of them the hooks wait for the models to be loaded and then hand over to
`spectrace_sglang.recording`; until then, and in every other process, they do nothing.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from spectrace_sglang.hooks import FIX, HOOKS, engine_folder

logger = logging.getLogger("spectrace")

_SCHEDULER = "sglang.srt.managers.scheduler"

_is_registered = False
_problems: list[str] = []
_recording: Any = None
"""Of this process, once its models are loaded."""


def register() -> None:
    """Makes schedulers record, if SPECTRACE_OUT says where; a second call does nothing. Never raises."""
    # A process that has not imported the scheduler by now does not run one.
    if not os.environ.get("SPECTRACE_OUT") or _SCHEDULER not in sys.modules or _is_registered:
        return
    try:
        _register()
    except Exception as error:  # noqa: BLE001  the engine's run is worth more than our trace
        logger.warning("sglang: nothing is recorded: %s; try: spectrace doctor", error)


def _register() -> None:
    """Hands the functions that fit to SGLang's own registry, which applies them after all plugins."""
    global _is_registered
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    folder = engine_folder()
    found = {hook: None if folder is None else hook.problem(folder) for hook in HOOKS}
    for hook, problem in found.items():
        if problem is not None:
            logger.warning("sglang: %s; a trace would lack %s; %s", problem, hook.loses, FIX)
            _problems.append(problem)
    _is_registered = True  # Or refused: both are said once.
    if any(problem is not None and hook.is_needed for hook, problem in found.items()):
        logger.warning("sglang: nothing is recorded: what is missing is needed; try: spectrace doctor")
        return
    for hook, problem in found.items():
        if problem is None:
            around = _attaching if hook.name == "init_model_worker" else _following(hook.name)
            HookRegistry.register(hook.target, around, HookType.AROUND)


def _following(name: str) -> Callable[..., Any]:
    """What stands in place of a function: itself, until a recording follows it."""

    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if _recording is None:
            return original(*args, **kwargs)
        return getattr(_recording.follower, name)(original, *args, **kwargs)

    return around


def _attaching(original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    """In place of a scheduler's function that loads its models: then there is something to follow."""
    result = original(scheduler, *args, **kwargs)
    _attach(scheduler)
    return result


def _attach(scheduler: Any) -> None:
    global _recording
    try:
        from spectrace_serving.settings import from_environment
        from spectrace_sglang.recording import attach

        settings = from_environment(os.environ)
        if settings is not None:
            _recording = attach(scheduler, settings, _problems)
    except Exception as error:  # noqa: BLE001  the engine's run is worth more than our trace
        logger.warning("sglang: nothing is recorded: %s; try: spectrace doctor", error)
