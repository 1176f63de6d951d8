"""The first screen, drawn before Textual is imported: a reader sees steps ten times sooner.

Plain escapes from the same lines that the app draws. Keys typed meanwhile stay in the terminal's queue and
reach the app. The terminal's modes are saved here and put back at the end.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from spectrace.tui.ascii import narrow_encoding, sayable
from spectrace.tui.ending import Ending
from spectrace.tui.layout import layout_for
from spectrace.tui.loader import Loader
from spectrace.tui.minimap import rejected_shares
from spectrace.tui.spans import Line, Role, Span, width_of
from spectrace.tui.step_detail import detail_lines, first_position
from spectrace.tui.step_row import columns_for, list_head, step_line
from spectrace.tui.summary import empty_lines, header_line, hint_line, minimap_line, place_text, status_line

_STYLES: dict[Role, str] = {
    "dim": "2",
    "strong": "1",
    "cursor": "1;7",
    "accepted": "32",
    "rejected": "1;7;31",
    "wanted": "1;4;33",
    "bonus": "1;36",
    "warning": "1;33",
}
_COLOURS = frozenset({"31", "32", "33", "36"})


@dataclass(frozen=True, slots=True)
class FirstPaint:
    """What was drawn, for the driver that goes on from there."""

    frame: str
    width: int
    height: int


def screen_lines(loader: Loader, row: int, width: int, height: int) -> list[Line]:
    """Every line of the main screen, as it looks when the viewer opens."""
    layout = layout_for(width, height, loader.total)
    facts = loader.facts
    columns = columns_for(width, loader.total, loader.longest_request)
    row = max(0, min(row, loader.total - 1))
    top = max(0, min(row - layout.list // 3, loader.total - layout.list)) if row >= layout.list else 0
    cell = row * width // loader.total if loader.total else None
    lines = [header_line(facts, width)]
    lines += [minimap_line(rejected_shares(loader, width), cell)] * layout.minimap
    lines.append(list_head(columns))
    for shown in range(top, top + layout.list):
        line: Line = []
        if shown < loader.total:
            step, states = loader.states(shown)
            line = step_line(shown, step, states, loader, columns, is_cursor=shown == row)
        lines.append(line)
    if layout.detail:
        lines += _detail(loader, row, width, layout.detail)
    states = loader.states(row)[1] if loader.total else ()
    place = place_text(row, loader.total, first_position(states), len(states))
    lines.append(status_line(place, "".join(facts.problems[:1]), (), width))
    return [*lines, *[hint_line(width)] * layout.hints]


def _detail(loader: Loader, row: int, width: int, height: int) -> list[Line]:
    if loader.total:
        step, states = loader.states(row)
        position = first_position(states)
        lines = detail_lines(row, step, states, loader, position=position, width=width, height=height)
    else:
        lines = empty_lines(loader.facts, width)
    return [*lines, *[[] for _ in range(height - len(lines))]][:height]


def frame_of(lines: list[Line], width: int, *, has_colour: bool) -> str:
    """Lines as one frame of escapes: every row from its first to its last cell."""
    rows = []
    for y, line in enumerate(lines, 1):
        spans = [*line, Span(" " * (width - width_of(line)))]
        text = "".join(_styled(span, has_colour) for span in spans)
        rows.append(f"\x1b[{y};1H{text}")
    return "".join(rows)


def _styled(span: Span, has_colour: bool) -> str:
    codes = _STYLES.get(span.role, "").split(";")
    style = ";".join(code for code in codes if code and (has_colour or code not in _COLOURS))
    return f"\x1b[{style}m{span.text}\x1b[0m" if style else span.text


@contextmanager
def first_screen(
    loader: Loader, row: int, environ: Mapping[str, str], ending: Ending
) -> Iterator[FirstPaint | None]:
    """Draws the first screen and holds the terminal until the app has ended; tells the ending its modes.

    Yields:
        What was drawn, None where that cannot be done here.
    """
    try:
        import termios
    except ImportError:  # Windows
        yield None
        return
    if "TEXTUAL_DRIVER" in environ:  # A web server draws.
        yield None
        return
    terminal = sys.__stdin__.fileno() if sys.__stdin__ is not None else -1
    saved = ending.modes = termios.tcgetattr(terminal)
    try:
        termios.tcsetattr(terminal, termios.TCSANOW, _keys_as_bytes(saved, terminal))
        width, height = os.get_terminal_size(terminal)
        frame = frame_of(
            screen_lines(loader, row, width, height), width, has_colour="NO_COLOR" not in environ
        )
        # Textual writes to standard error, and so does this.
        encoding = narrow_encoding(sys.__stderr__)
        said = sayable(frame, encoding) if encoding else frame
        os.write(2, ("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J" + said).encode(encoding or "utf-8"))
        yield FirstPaint(frame, width, height)
    except BaseException:
        # The app leaves the screen itself, unless it never came to it.
        with suppress(OSError):  # The terminal is gone.
            os.write(2, b"\x1b[?7h\x1b[?25h\x1b[?1049l")
        raise
    finally:
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, saved)


def _keys_as_bytes(attributes: list[Any], terminal: int) -> list[Any]:
    """Terminal attributes without echo, line editing and translation; Ctrl-C still interrupts.

    Ctrl-Z and Ctrl-Backslash wait as keys: stopped or killed here, the shell would be left with our screen.
    """
    import termios

    changed = list(attributes)
    changed[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON)
    changed[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    changed[6] = [*attributes[6]]
    changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0
    nothing = bytes([os.fpathconf(terminal, "PC_VDISABLE")])
    changed[6][termios.VSUSP] = changed[6][termios.VQUIT] = nothing
    return changed
