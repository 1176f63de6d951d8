"""What a person would see after these bytes: pyte, and what it lacks of today's terminals.

Added are repeated characters, scrolled regions and backward tabs; left out before pyte sees them are
keyboard and device strings, which it would print. Counts the colours that are asked for. Knows no process.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pyte

_UNSHOWN = re.compile(
    rb"\x1b\[[<=>][0-9;:]*[ -/]*[@-~]|\x1b\[[?]?[0-9;]*[$ !\"'][@-~]|\x1b[P_^X][^\x1b]*\x1b\\"
)
_UNFINISHED = re.compile(rb"\x1b(\[[<=>?]?[0-9;:]*[ -/]*|[P_^X][^\x1b]*\x1b?)?$")
_STYLE = re.compile(rb"\x1b\[([0-9;:]*)m")


class _Cells(pyte.Screen):
    """pyte's screen with three more commands."""

    last = " "

    def draw(self, data: str) -> None:
        """Remembers the last character, for REP."""
        super().draw(data)
        self.last = data[-1:] or self.last

    def repeat(self, count: int = 1, **_: Any) -> None:
        """REP: the last character again."""
        super().draw(self.last * max(count, 1))

    def scroll_up(self, count: int = 1, **_: Any) -> None:
        """SU: the region moves up, blank lines come below."""
        self._scroll(self.delete_lines, count)

    def scroll_down(self, count: int = 1, **_: Any) -> None:
        """SD: the region moves down, blank lines come above."""
        self._scroll(self.insert_lines, count)

    def back_tab(self, count: int = 1, **_: Any) -> None:
        """CBT: to the tabulator before the cursor."""
        for _again in range(max(count, 1)):
            self.cursor.x = max((stop for stop in self.tabstops if stop < self.cursor.x), default=0)

    def _scroll(self, change: Any, count: int) -> None:
        x, y = self.cursor.x, self.cursor.y
        self.cursor.y = self.margins.top if self.margins else 0
        change(max(count, 1))
        self.cursor.x, self.cursor.y = x, y


class _Stream(pyte.Stream):
    """pyte's parser with three more commands."""

    csi = {  # noqa: RUF012 - pyte reads plain class attributes
        **pyte.Stream.csi,
        "b": "repeat",
        "S": "scroll_up",
        "T": "scroll_down",
        "Z": "back_tab",
    }
    events = pyte.Stream.events | {"repeat", "scroll_up", "scroll_down", "back_tab"}


class Screen:
    """A terminal's cells.

    Args:
        columns: width.
        lines: height.
    """

    def __init__(self, columns: int, lines: int) -> None:
        self._cells = _Cells(columns, lines)
        self._stream = _Stream(self._cells)
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Takes output, which may end anywhere."""
        data = self._rest + data
        cut = _whole(data)
        data, self._rest = data[:cut], data[cut:]
        self._stream.feed(_UNSHOWN.sub(b"", data).decode("utf-8", "replace"))

    def resize(self, columns: int, lines: int) -> None:
        """Takes another size; cells outside are gone."""
        self._cells.resize(lines, columns)

    @property
    def lines(self) -> list[str]:
        """The text of each row."""
        return [line.rstrip() for line in self._cells.display]

    @property
    def text(self) -> str:
        """All rows."""
        return "\n".join(self.lines)


def _whole(data: bytes) -> int:
    """Where the last whole escape and the last whole character end."""
    unfinished = _UNFINISHED.search(data)
    cut = unfinished.start() if unfinished else len(data)
    for back in range(1, min(4, cut + 1)):
        byte = data[cut - back]
        if byte & 0xC0 != 0x80:
            needed = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return cut - back if needed > back else cut
    return cut


def colours_in(output: bytes) -> Counter[str]:
    r"""Colours that were asked for, by depth: "16", "256" and "true".

    >>> dict(colours_in(b"\x1b[1;7;31mx\x1b[0;38;5;7;48;2;1;2;3m"))
    {'16': 1, '256': 1, 'true': 1}
    """
    found: Counter[str] = Counter()
    for parameters in _STYLE.findall(output):
        codes = iter(parameters.replace(b":", b";").split(b";"))
        for code in codes:
            number = int(code or 0)
            if number in (38, 48, 58):
                is_true = next(codes, b"") == b"2"
                found["true" if is_true else "256"] += 1
                for _ in range(3 if is_true else 1):
                    next(codes, None)
            elif 30 <= number <= 37 or 40 <= number <= 47 or 90 <= number <= 97 or 100 <= number <= 107:
                found["16"] += 1
    return found
