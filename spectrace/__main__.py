"""Where the command `spectrace` and `python -m spectrace` begin: Ctrl-C ends them in silence at any time.

Imports nothing before it has said what Ctrl-C does. What the command does stands in `spectrace.cli`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130
"""128 + SIGINT, as shells say it."""


def main() -> int:
    """Runs the command line; the exit code."""
    _replace(signal.default_int_handler, _end)
    from spectrace.cli import main as run

    _replace(_end, signal.default_int_handler)
    try:
        code = run()
    except KeyboardInterrupt:  # Once more, while the first was answered.
        code = INTERRUPTED
    _replace(signal.default_int_handler, _end)
    return code


def _replace(old: object, new: Callable[[int, FrameType | None], object]) -> None:
    """Another answer to Ctrl-C, unless somebody has decided otherwise, such as to ignore it."""
    if signal.getsignal(signal.SIGINT) is old:
        signal.signal(signal.SIGINT, new)


def _end(*_: object) -> None:
    # Nothing is begun yet, or everything is done: no exception, which would be printed on the way.
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
