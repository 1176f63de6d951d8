"""What every engine's plugin does: begin a recording if the environment asks for one, and never raise.

An engine calls its plugins in every process it starts, and most of them record nothing: this file imports
nothing until a model is loaded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("spectrace")


def is_asked_for() -> bool:
    """Whether the environment says where to record."""
    return bool(os.environ.get("SPECTRACE_OUT"))


def guarded(engine: str, action: Callable[..., Any], *args: Any) -> Any:
    """Runs an action of the plugin; where it raises, the log says so and what to type.

    Args:
        engine: as the log names it.
        action: of ours, in a process of the engine.
        args: of the action.
    """
    try:
        return action(*args)
    except Exception as error:  # noqa: BLE001  the engine's run is worth more than our trace
        logger.warning("%s: nothing is recorded from here on: %s; try: spectrace doctor", engine, error)
        return None


def begun(attach: Callable[[Any], Any]) -> Any:
    """A recording as the environment asks for it; None where it does not.

    Args:
        attach: begins one with these settings.
    """
    from spectrace_serving.settings import from_environment

    settings = from_environment(os.environ)
    return None if settings is None else attach(settings)
