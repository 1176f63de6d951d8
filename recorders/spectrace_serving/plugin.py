"""What every engine's plugin does: begin a recording if the environment asks for one, and never raise.

An engine calls its plugins in every process it starts, and most of them record nothing: this file imports
nothing until a model is loaded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from spectrace.errors import SpectraceError

logger = logging.getLogger("spectrace")


def is_asked_for() -> bool:
    """Whether the environment says where to record."""
    return bool(os.environ.get("SPECTRACE_OUT"))


def guarded(engine: str, action: Callable[..., Any], *args: Any) -> Any:
    """Runs an action of the plugin; where it raises, the log says so and what to type.

    Args:
        engine: name of its logger.
        action: of ours, in a process of the engine.
        args: of the action.
    """
    try:
        return action(*args)
    except Exception as error:  # noqa: BLE001  the engine's run is worth more than our trace
        speak_as(engine)
        # What is ours says itself what is to be done.
        advice = "" if isinstance(error, SpectraceError) else "; try: spectrace doctor"
        logger.warning("spectrace: nothing is recorded: %s%s", error, advice)
        return None


def speak_as(engine: str) -> None:
    """Has our lines come out where the engine's do, from INFO on, unless somebody has seen to it.

    vLLM's handler hangs on its own logger and not on the root, so that of ours Python would print warnings
    alone, without level, time and process. A second call does nothing.

    Args:
        engine: name of its logger.
    """
    if logger.hasHandlers():
        return
    theirs = logging.getLogger(engine)
    own = logging.StreamHandler()
    own.setFormatter(logging.Formatter("%(levelname)s %(asctime)s pid=%(process)d %(message)s"))
    for handler in theirs.handlers or [own]:
        logger.addHandler(handler)
    logger.setLevel(theirs.level or logging.INFO)
    logger.propagate = False  # a root that is set up later would say it again


def begun(engine: str, attach: Callable[[Any], Any]) -> Any:
    """A recording as the environment asks for it; None where it does not.

    Args:
        engine: name of its logger.
        attach: begins one with these settings.
    """
    from spectrace_serving.settings import from_environment

    speak_as(engine)
    settings = from_environment(os.environ)
    return None if settings is None else attach(settings)
