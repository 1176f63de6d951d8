"""A fault of the viewer's own in a few lines: where it came up and what it was.

Holds no source line and no value of a variable, which may be a text of the trace that nobody wants to send.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.traceback import Traceback

from spectrace.format.text import visible

_MOST_FRAMES = 12


def fault_lines(renderables: Iterable[object]) -> list[str]:
    """What Textual would print of a fault, as lines.

    Args:
        renderables: Rich's tracebacks; an error that draws itself is taken by its name.

    Returns:
        One line a frame, the innermost last, then the fault.
    """
    lines = []
    for renderable in renderables:
        if not isinstance(renderable, Traceback):
            lines.append(f"{type(renderable).__name__}: {visible(str(renderable), limit=300)}")
            continue
        for stack in renderable.trace.stacks[:1]:
            for frame in stack.frames[-_MOST_FRAMES:]:
                lines.append(f"{_place(frame.filename)}:{frame.lineno} in {frame.name}")
            lines.append(f"{stack.exc_type}: {visible(stack.exc_value, limit=300)}")
    return lines


def _place(filename: str) -> str:
    """A file without the folders above its package, which name the reader's machine."""
    return visible("/".join(Path(filename).parts[-3:]), limit=120)
