"""Where the command `spectrace` and `python -m spectrace` begin: Ctrl-C ends them in silence at any time.

Imports nothing before it has said what Ctrl-C does. What the command does stands in `spectrace.cli`.
"""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 130
"""128 + SIGINT, as shells say it."""


def main() -> int:
    """Runs the command line; the exit code."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, _end)
    from spectrace.cli import main as run

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = run()
    except KeyboardInterrupt:  # Once more, while the first was answered.
        code = INTERRUPTED
    if is_ours:
        signal.signal(signal.SIGINT, _end)
    return code


def _end(*_: object) -> None:
    # Nothing is begun yet, or everything is done: no exception, which would be printed on the way.
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
