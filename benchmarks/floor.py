"""The floor under every Textual program: `hello` is one line, `lines` a million rows of the stock line API.

What these cost no viewer on Textual can avoid; what the viewer costs beside them is its own. Run by
`bench_viewer.py` in a terminal.
"""

from __future__ import annotations

import random
import sys

from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

ROWS = 1_000_000
_ACCEPTED, _REJECTED, _DIM = Style.parse("green"), Style.parse("red reverse"), Style.parse("bright_black")
_CURSOR = Style.parse("reverse")


class Rows(ScrollView, can_focus=True):
    """Rows drawn by `render_line`; a move inside the page draws two of them, a scroll all."""

    BINDINGS = [  # noqa: RUF012 - Textual reads plain class attributes
        Binding("down,j", "move(1)"),
        Binding("up,k", "move(-1)"),
        Binding("pagedown", "page(1)"),
        Binding("pageup", "page(-1)"),
        Binding("home,g", "go(0)"),
        Binding("end,G", "go(-1)"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.cursor = 0
        self.show_horizontal_scrollbar = False

    def on_resize(self) -> None:
        """Takes the width."""
        self.virtual_size = Size(self.size.width, ROWS)

    def render_line(self, y: int) -> Strip:
        """One row."""
        row = y + self.scroll_offset.y
        strip = Strip(_segments(row)).adjust_cell_length(self.size.width)
        return strip.apply_style(_CURSOR) if row == self.cursor else strip

    def _put_cursor(self, row: int) -> None:
        old, self.cursor = self.cursor, max(0, min(ROWS - 1, row))
        top, height = self.scroll_offset.y, self.size.height
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, immediate=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, immediate=True)
        else:
            for changed in (old, self.cursor):
                self.refresh(Region(0, changed - top, self.size.width, 1))
        self.app.query_one("#place", Static).update(f"{self.cursor}/{ROWS}")

    def action_move(self, rows: int) -> None:
        """Moves by rows."""
        self._put_cursor(self.cursor + rows)

    def action_page(self, pages: int) -> None:
        """Moves by pages."""
        self._put_cursor(self.cursor + pages * self.size.height)

    def action_go(self, row: int) -> None:
        """Moves to the first or the last row."""
        self._put_cursor(row % ROWS)


def _segments(row: int) -> list[Segment]:
    draw = random.Random(row)
    accepted = draw.randrange(6)
    tokens = [
        Segment(
            f"{draw.randrange(128_256):>8}",
            _ACCEPTED if at < accepted else _REJECTED if at == accepted else _DIM,
        )
        for at in range(5)
    ]
    head = [Segment(f"{row:>9} ", _DIM), Segment(f"req-{row // 64:07d} ")]
    return [*head, *tokens, Segment(f"  {accepted}/5  {8 + draw.random() * 12:6.2f} ms")]


class Lines(App[None]):
    """The pane and a line below it."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "#place { dock: bottom; height: 1; } Rows { scrollbar-size-vertical: 0; }"
    BINDINGS = [("q", "quit", "Quit")]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        """The pane and a line below it."""
        yield Rows()
        yield Static("", id="place", markup=False)


class Hello(App[None]):
    """One line; any key answers with another."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [("q", "quit", "Quit"), ("j", "answer", "Answer")]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        """One line."""
        yield Static("hello world")

    def action_answer(self) -> None:
        """Another line."""
        self.query_one(Static).update("a key was handled")


if __name__ == "__main__":
    (Lines() if sys.argv[1:] == ["lines"] else Hello()).run(mouse=False)
