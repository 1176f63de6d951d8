"""A small terminal: what a person would see after these bytes.

Knows what Textual and the frugal driver send: cursor moves, SGR, erasing, scroll regions, wide characters.
Modes and queries are ignored; anything else raises, so that a test never passes by not looking. Only
after a change of size may a frame that was on its way be too large; it is cropped as terminals do it.
"""

from __future__ import annotations

import re

from rich.cells import get_character_cell_size

_PART = re.compile(
    r"\x1b\[(?P<private>[?<=>][0-9;]*\$?[a-zA-Z])"
    r"|\x1b\[(?P<arguments>[0-9;]*)(?P<command>[a-zA-Z])"
    r"|\x1b\](?P<osc>[^\x07\x1b]*)\x07"
    r"|(?P<text>[^\x1b]+)"
)
BLANK = (" ", "")


def _seen_on_blank(style: str) -> str:
    units = style.split(",")
    return style if "a7" in units else ",".join(u for u in units if u in ("a4", "a9") or u[:1] == "b")


class Screen:
    """Cells of (character, style); the style as its sorted SGR codes."""

    def __init__(self, width: int, height: int, *, is_strict: bool = True) -> None:
        self.is_strict = is_strict
        self.width, self.height = width, height
        self.cells = [[BLANK] * width for _ in range(height)]
        self.y = self.x = 0
        self.style = ""
        self.region = (0, height - 1)

    def feed(self, data: str) -> None:
        """Takes output."""
        at = 0
        while at < len(data):
            part = _PART.match(data, at)
            assert part is not None, f"not understood: {data[at : at + 40]!r}"
            at = part.end()
            if part["text"] is not None:
                self._write(part["text"])
            elif part["command"] is not None:
                arguments = [int(n or 0) for n in part["arguments"].split(";")]
                self._obey(part["command"], arguments)

    @property
    def lines(self) -> list[str]:
        """The text of each row."""
        return ["".join(character for character, _ in row).rstrip() for row in self.cells]

    @property
    def seen(self) -> list[list[tuple[str, str]]]:
        """The cells as a person sees them: where nothing stands, weight and colour of letters do not show."""
        return [
            [(text, style if text != " " else _seen_on_blank(style)) for text, style in row]
            for row in self.cells
        ]

    def _write(self, text: str) -> None:
        for character in text:
            if character == "\n":
                assert self.y < self.height - 1 or not self.is_strict, "a line feed that scrolls"
                if self.y == self.height - 1:
                    self._scroll(1)
                self.y = min(self.y + 1, self.height - 1)
                continue
            if character == "\r":
                self.x = 0
                continue
            width = get_character_cell_size(character)
            assert character.isprintable(), f"control character {character!r}"
            if width == 0:
                before = self.cells[self.y][self.x - 1]
                self.cells[self.y][self.x - 1] = (before[0] + character, before[1])
                continue
            assert self.x + width <= self.width or not self.is_strict, "written past the last column"
            self.x = min(self.x, self.width - width)
            for cell in ((character, self.style), ("", self.style))[:width]:
                self._break_wide(self.x)
                self.cells[self.y][self.x] = cell
                self.x += 1

    def _break_wide(self, x: int) -> None:
        """Half of a wide character that is overwritten becomes a blank."""
        row = self.cells[self.y]
        if row[x][0] == "" and x:
            row[x - 1] = BLANK
        if x + 1 < self.width and row[x + 1][0] == "":
            row[x + 1] = BLANK

    def _obey(self, command: str, arguments: list[int]) -> None:
        first = arguments[0]
        if command == "H":
            self.y = min(max(first, 1), self.height) - 1
            self.x = min(max(arguments[1], 1), self.width) - 1 if len(arguments) > 1 else 0
        elif command == "G":
            self.x = min(max(first, 1), self.width) - 1
        elif command == "m":
            self._set_style(arguments)
        elif command == "K":
            self._break_wide(self.x)
            self.cells[self.y][self.x :] = [BLANK] * (self.width - self.x)
        elif command == "J":
            self.cells = [[BLANK] * self.width for _ in range(self.height)]
        elif command == "r":
            self.region = (first - 1, arguments[1] - 1) if len(arguments) > 1 else (0, self.height - 1)
            self.y = self.x = 0
        elif command in "LM":
            assert self.y == self.region[0], "lines inserted or deleted below the top of the region"
            self._scroll(max(first, 1) if command == "M" else -max(first, 1))
        else:
            raise AssertionError(f"unknown command {command!r}")

    def _scroll(self, lines: int) -> None:
        assert not self.style or not self.is_strict, "scrolled with a style set: the new lines would have it"
        top, bottom = self.region
        rows = self.cells[top : bottom + 1]
        new = [[BLANK] * self.width for _ in range(abs(lines))]
        self.cells[top : bottom + 1] = [*rows[lines:], *new] if lines > 0 else [*new, *rows[:lines]]

    def _set_style(self, codes: list[int]) -> None:
        units = set(self.style.split(",")) - {""}
        rest = iter(codes)
        for code in rest:
            if code == 0:
                units = set()
                continue
            kinds = {3: "f", 9: "f", 4: "b", 10: "b"}
            kind = kinds.get(code // 10, "") if code >= 30 else "a"
            if kind != "a":
                units = {unit for unit in units if unit[0] != kind}
            value = str(code)
            if code in (38, 48):
                space = next(rest)
                value += "".join(f";{next(rest)}" for _ in range(1 if space == 5 else 3))
            if code not in (39, 49):
                units.add(kind + value)
        self.style = ",".join(sorted(units))
