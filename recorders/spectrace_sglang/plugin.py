"""The entry point `sglang.srt.plugins`: SGLang calls `register` in every process it starts.

Only schedulers run models. In one of them the hooks wait for the models to be loaded and then hand over to
`spectrace_sglang.recording`; until then, and in every other process, they do nothing.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from spectrace_serving.hooks import package_folder
from spectrace_serving.plugin import begun, guarded, is_asked_for, speak_as
from spectrace_sglang.hooks import FIX, HOOKS

logger = logging.getLogger("spectrace")

_SCHEDULER = "sglang.srt.managers.scheduler"

_is_registered = False
_problems: list[str] = []
_recording: Any = None
"""Of this process, once its models are loaded."""


def register() -> None:
    """Makes schedulers record, if SPECTRACE_OUT says where; a second call does nothing. Never raises."""
    # A process that has not imported the scheduler by now does not run one.
    if is_asked_for() and _SCHEDULER in sys.modules and not _is_registered:
        guarded("sglang", _register)


def _register() -> None:
    """Hands the functions that fit to SGLang's own registry, which applies them after all plugins."""
    global _is_registered
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    folder = package_folder("sglang")
    found = {hook: None if folder is None else hook.problem(folder) for hook in HOOKS}
    for hook, problem in found.items():
        if problem is not None:
            speak_as("sglang")
            logger.warning("spectrace: %s; a trace would lack %s; %s", problem, hook.loses, FIX)
            _problems.append(problem)
    _is_registered = True  # Or refused: both are said once.
    if any(problem is not None and hook.is_needed for hook, problem in found.items()):
        logger.warning("spectrace: nothing is recorded: what is missing is needed; try: spectrace doctor")
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
    guarded("sglang", _attach, scheduler)
    return result


def _attach(scheduler: Any) -> None:
    global _recording
    from spectrace_sglang.recording import attach, speaks

    if speaks():  # or nothing is said either: an engine says it once
        _recording = begun("sglang", lambda settings: attach(scheduler, settings, _problems))
