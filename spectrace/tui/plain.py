"""What a screen shows as plain lines, for screen readers, dumb terminals and pipes: no escape, no art."""

from __future__ import annotations

import re
from collections.abc import Iterator

from spectrace.errors import UsageError
from spectrace.tui.ascii import to_ascii
from spectrace.tui.keys import every_key
from spectrace.tui.loader import Loader
from spectrace.tui.spans import Line, text_of
from spectrace.tui.step_detail import detail_lines, first_position
from spectrace.tui.step_row import columns_for, list_head, step_line
from spectrace.tui.summary import empty_lines, header_line

_BEFORE, _AFTER = 5, 15
"""Steps of the list around the cursor; every other screen is printed whole."""
_DETAIL = 200
_RULE = re.compile("─{2,} ?")


def plain_lines(loader: Loader, name: str, row: int, width: int, *, is_ascii: bool = False) -> Iterator[str]:
    """The lines of a screen.

    Args:
        loader: the trace.
        name: id of the screen, "" or "steps" = the list of steps.
        row: the step under the cursor.
        width: cells.
        is_ascii: draw branches and bars with ASCII characters.

    Raises:
        UsageError: there is no such screen.
    """
    lines = _lines(loader, name, row, width)
    # A rule of dashes says nothing to the ear.
    ruled = ([span._replace(text=_RULE.sub("", span.text)) for span in line] for line in lines)
    return (text_of(to_ascii(line) if is_ascii else line).rstrip() for line in ruled)


def screen_names() -> list[str]:
    """Ids of every screen."""
    from spectrace.tui.pages import PAGES

    return ["steps", *(page.id for page in PAGES), "help"]


def check_screen(name: str) -> None:
    """Refuses the name of a screen that is none.

    Raises:
        UsageError: the sentence lists those that there are.
    """
    if name and name not in screen_names():
        raise UsageError(f"no screen {name!r}; there are {', '.join(screen_names())}")


def _lines(loader: Loader, name: str, row: int, width: int) -> Iterator[Line]:
    from spectrace.tui.pages import PAGES

    check_screen(name)
    if name in ("", "steps"):
        yield from _steps(loader, row, width)
    elif name == "help":
        from spectrace.tui.pages.own import help_lines

        yield from (line.spans for line in help_lines(width, every_key()))
    else:
        page = next(page for page in PAGES if page.id == name)
        yield from (line.spans for line in page.lines(page.gather(loader, row), width))


def _steps(loader: Loader, row: int, width: int) -> Iterator[Line]:
    loader.count_requests()
    yield header_line(loader.facts, width)
    if not loader.total:
        yield from empty_lines(loader.facts, width)
        return
    columns = columns_for(width, loader.total, loader.longest_request)
    yield list_head(columns)
    for shown in range(max(0, row - _BEFORE), min(row + _AFTER, loader.total)):
        step, states = loader.states(shown)
        yield step_line(shown, step, states, loader, columns, is_cursor=shown == row)
    step, states = loader.states(row)
    position = first_position(states)
    yield from detail_lines(row, step, states, loader, position=position, width=width, height=_DETAIL)
