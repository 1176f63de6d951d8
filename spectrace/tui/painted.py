"""The cells a terminal shows, and the fewest bytes that turn them into the next frame.

`Painted` rewrites each frame of Textual's: equal cells are skipped, rows that moved are moved by the
terminal, blank ends are erased. What it does not understand passes unchanged and makes it forget, so
that a mistake lasts one frame at most. Knows the terminal's grammar and no Textual.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from rich.cells import cell_len, get_character_cell_size

_MOVE = re.compile(r"\x1b\[(\d+);(\d+)H")
_STYLE = re.compile(r"\x1b\[([0-9;]*)m")
_STRANGE = re.compile(r"\x1b(?!\[[0-9;]*[mH])|[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
_COLOURS = {"3": "front", "9": "front", "4": "back", "10": "back"}
"""Tens of an SGR code -> the colour that it sets; x8 is followed by more parameters, x9 is the default."""
_NEAR = 6
"""Equal cells between two changes that cost less than a cursor move."""
_FEWEST_MOVED = 4
"""Rows that must have moved together before the terminal is asked to scroll."""

Cell = tuple[str, str]
"""(character, style); the style is the SGR codes after a reset, joined by colons. The right half of a wide
character is ("", style)."""
_BLANK: Cell = (" ", "")
_UNKNOWN: Cell = ("unknown", "")


class Painted:
    """What the terminal shows, as far as it is known."""

    def __init__(self) -> None:
        self._width = 0
        self._rows: list[list[Cell] | None] = []
        self._cursor: tuple[int, int] | None = None

    def forget(self) -> None:
        """Nothing is known of the screen any more."""
        self._rows = [None] * len(self._rows)
        self._cursor = None

    def resize(self, width: int, height: int) -> None:
        """Takes the terminal's size; a new one forgets everything."""
        if (width, height) != (self._width, len(self._rows)):
            self._width = width
            self._rows = [None] * height
            self._cursor = None

    def reduce(self, frame: str) -> str:
        """The bytes that turn what is shown into what the frame shows, "" when nothing changes."""
        if _STRANGE.search(frame) or not _MOVE.match(frame):
            self.forget()
            return frame
        wanted, cursor = self._read(frame)
        if wanted is None:
            self.forget()
            return frame
        out = [self._scroll(wanted)]
        for y, row in wanted.items():
            out.append(_repaint(y, self._rows[y], row))
            self._rows[y] = row
        body = "".join(out)
        if body or cursor != self._cursor:
            self._cursor = cursor
            body += f"\x1b[{cursor[0] + 1};{cursor[1] + 1}H"
        return body

    def _read(self, frame: str) -> tuple[dict[int, list[Cell]] | None, tuple[int, int]]:
        """The rows a frame changes, as they will be; None when it leaves the screen."""
        parts = _MOVE.split(frame)[1:]
        rows: dict[int, list[Cell]] = {}
        y = x = 0
        for at in range(0, len(parts), 3):
            y, x = int(parts[at]) - 1, int(parts[at + 1]) - 1
            cells = _cells(parts[at + 2].rstrip("\n"))
            if not cells and cells is not None:
                continue
            if cells is None or y >= len(self._rows) or x + len(cells) > self._width:
                return None, (y, x)
            row = rows.get(y)
            if row is None:
                known = self._rows[y]
                row = rows[y] = list(known) if known else [_UNKNOWN] * self._width
            row[x : x + len(cells)] = cells
        return rows, (y, x)

    def _scroll(self, wanted: dict[int, list[Cell]]) -> str:
        """Lets the terminal move rows that only moved, and moves them in the model."""
        span = _longest_run([y for y, row in wanted.items() if self._rows[y] != row])
        if len(span) < _FEWEST_MOVED or any(_UNKNOWN in wanted[y] for y in span):
            return ""
        places: dict[tuple[Cell, ...], int] = {}
        for y in span:
            shown = self._rows[y]
            if shown is not None and any(cell != _BLANK for cell in shown):
                places.setdefault(tuple(shown), y)
        moved = {y: places[key] - y for y in span if (key := tuple(wanted[y])) in places}
        shift, votes = Counter(moved.values()).most_common(1)[0] if moved else (0, 0)
        if shift == 0 or votes < max(_FEWEST_MOVED, len(span) // 3):
            return ""
        top, bottom = self._moved_region(wanted, span, [y for y, by in moved.items() if by == shift], shift)
        old = self._rows[top : bottom + 1]
        blank: list[list[Cell] | None] = [[_BLANK] * self._width for _ in range(abs(shift))]
        self._rows[top : bottom + 1] = [*old[shift:], *blank] if shift > 0 else [*blank, *old[:shift]]
        # Lines deleted or inserted at the top of a region, not SU and SD, which the Linux console lacks.
        move = f"\x1b[{top + 1}H\x1b[{shift}M" if shift > 0 else f"\x1b[{top + 1}H\x1b[{-shift}L"
        return f"\x1b[m\x1b[{top + 1};{bottom + 1}r{move}\x1b[r"

    def _moved_region(
        self, wanted: dict[int, list[Cell]], span: Sequence[int], moved: Sequence[int], shift: int
    ) -> tuple[int, int]:
        """First and last row of what moves: rows that only moved, and those beside them that hardly changed.

        A pane below a list changes with every row, but does not move: scrolled along, it would be blank and
        sent whole.
        """
        inside = range(span[0], span[-1] + 1)
        top, bottom = min(moved), max(moved)
        while bottom + 1 in inside and bottom + 1 + shift in inside:
            if not _is_alike(wanted[bottom + 1], self._rows[bottom + 1 + shift]):
                break
            bottom += 1
        while top - 1 in inside and top - 1 + shift in inside:
            if not _is_alike(wanted[top - 1], self._rows[top - 1 + shift]):
                break
            top -= 1
        return min(top, top + shift), max(bottom, bottom + shift)


def _is_alike(row: list[Cell], shown: list[Cell] | None) -> bool:
    """Whether most of what a row has stands in another."""
    if shown is None:
        return False
    drawn = [cell == there for cell, there in zip(row, shown) if cell != _BLANK]
    return 2 * sum(drawn) > len(drawn)


def _longest_run(numbers: Sequence[int]) -> list[int]:
    """The longest stretch of consecutive numbers."""
    best: list[int] = []
    run: list[int] = []
    for number in sorted(numbers):
        run = [*run, number] if run and number == run[-1] + 1 else [number]
        if len(run) > len(best):
            best = run
    return best


def _cells(text: str) -> list[Cell] | None:
    """Cells of styled text; None when a terminal may measure it differently."""
    if "\n" in text:
        return None
    cells: list[Cell] = []
    style = ""
    for at, part in enumerate(_STYLE.split(text)):
        if at % 2:
            style = _style(style, part)
        elif part.isascii():
            blank = (" ", _style_of_blank(style))
            cells.extend([blank if character == " " else (character, style) for character in part])
        elif not _add_wide(cells, part, style):
            return None
    return cells


def _add_wide(cells: list[Cell], text: str, style: str) -> bool:
    """Adds characters that may take no cell or two; False where a terminal may see it otherwise."""
    before = len(cells)
    for character in text:
        width = get_character_cell_size(character)
        if character == " ":
            cells.append((" ", _style_of_blank(style)))
        elif width:
            cells.extend([(character, style), ("", style)][:width])
        elif len(cells) > before and cells[-1][0]:
            # A combining mark shares the cell of what it stands on.
            cells[-1] = (cells[-1][0] + character, style)
        else:
            return False
    return len(cells) - before == cell_len(text)


@lru_cache(maxsize=4096)
def _style(before: str, parameters: str) -> str:
    """SGR parameters in force after one more sequence; default colours are left out."""
    units = before.split(":") if before else []
    codes = iter(parameters.split(";"))
    for code in codes:
        colour = _colour_set_by(code)
        if code.strip("0") == "":
            units = []
        elif colour is None:
            units = [*(unit for unit in units if unit != code), code]
        else:
            units = [unit for unit in units if _colour_set_by(unit.split(";")[0]) != colour]
            if code in ("38", "48", "58"):
                space = next(codes, "")
                count = 1 if space == "5" else 3
                code = ";".join([code, space, *(next(codes, "") for _ in range(count))])
            if code not in ("39", "49", "59"):
                units.append(code)
    return ":".join(units)


@lru_cache(maxsize=4096)
def _style_of_blank(style: str) -> str:
    """What of a style is seen where nothing stands: lines and the colour behind, in reverse all of it."""
    units = style.split(":") if style else []
    if "7" in units:
        return style
    return ":".join(u for u in units if u in ("4", "9") or _colour_set_by(u.split(";")[0]) == "back")


def _colour_set_by(code: str) -> str | None:
    """Which colour an SGR code sets, None for what is not a colour."""
    return "under" if code in ("58", "59") else _COLOURS.get(code[:-1])


def _repaint(y: int, shown: list[Cell] | None, row: list[Cell]) -> str:
    """The bytes that turn one row into another."""
    shown = shown or [_UNKNOWN] * len(row)
    if shown == row:
        return ""
    end = len(row)
    while end and row[end - 1] == _BLANK:
        end -= 1
    stretches = _changes(shown, row, end)
    out: list[str] = []
    style = ""
    for a, b in stretches:
        out.append(f"\x1b[{a + 1}G" if out else f"\x1b[{y + 1};{a + 1}H")
        style = _add_styled(out, row[a:b], style)
    out.append("\x1b[m" if style else "")
    if shown[end:] != row[end:]:
        is_there = stretches and stretches[-1][1] == end
        out.append("\x1b[K" if is_there else f"\x1b[{y + 1};{end + 1}H\x1b[K")
    return "".join(out)


def _changes(shown: list[Cell], row: list[Cell], end: int) -> list[tuple[int, int]]:
    """Stretches of cells to send, none of which begins or ends inside a wide character."""
    stretches: list[tuple[int, int]] = []
    for x in range(end):
        if shown[x] == row[x]:
            continue
        start, stop = x, x + 1
        while start and not (row[start][0] and shown[start][0]):
            start -= 1
        while stop < end and not (row[stop][0] and shown[stop][0]):
            stop += 1
        last = stretches[-1][1] if stretches else 0
        if stretches and start - last <= _NEAR and _UNKNOWN not in row[last:start]:
            stretches[-1] = (stretches[-1][0], max(stop, last))
        else:
            stretches.append((start, stop))
    return stretches


def _add_styled(out: list[str], cells: Sequence[Cell], style: str) -> str:
    """Adds cells as bytes to those that left a style in force; the style that these leave."""
    for character, wanted in cells:
        if wanted != style and not (character == " " and wanted == _style_of_blank(style)):
            codes = wanted.replace(":", ";")
            out.append(f"\x1b[0;{codes}m" if codes and style else f"\x1b[{codes}m")
            style = wanted
        out.append(character)
    return style
