"""Actions of ours on an engine's thread: one that raises is off from then on, and the engine goes on.

Also where a trace may be written, since no engine may fail over that either.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from spectrace.format.writer import TraceWriter

logger = logging.getLogger("spectrace")


class Guard:
    """Runs actions by name.

    Args:
        writer: is told of an action that failed.
    """

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._broken: set[str] = set()

    def __call__(self, name: str, action: Callable[..., Any], *args: Any) -> Any:
        """Runs an action; once one of this name has raised, none is run again."""
        if name in self._broken:
            return None
        try:
            return action(*args)
        except Exception as error:  # noqa: BLE001  the engine's run is worth more than our trace
            self._broken.add(name)
            what = f"{type(error).__name__}: {error}"
            logger.warning("spectrace: the hook %r failed and is off, serving goes on: %s", name, what)
            self._writer.amend(capture={"unavailable": {f"hook {name}": what[:200]}})
            return None


def free_name(folder: Path, engine: str) -> Path:
    """A file that does not exist yet, named after the engine, the time and the process."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{engine}-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    names = (f"{stem}{end}.spectrace" for end in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(folder / name for name in names if not (folder / name).exists())
