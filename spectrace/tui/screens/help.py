"""Every key and every mark, made from the registry of keys."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding

from spectrace.tui.screens.key_screen import KeyScreen
from spectrace.tui.spans import Span
from spectrace.tui.summary import help_lines
from spectrace.tui.widgets.line_pane import LinePane


class HelpScreen(KeyScreen):
    """The help; any of the keys that go back closes it."""

    BINDINGS = [
        Binding("q,escape,enter,question_mark,f1,ctrl+c", "close", "back", id="help.close"),
        Binding("j,down", "scroll(1)", "down", id="help.down"),
        Binding("k,up", "scroll(-1)", "up", id="help.up"),
        Binding("space,pagedown,ctrl+d", "scroll(10)", "page down", id="help.page_down"),
        Binding("b,pageup,ctrl+u", "scroll(-10)", "page up", id="help.page_up"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._top = 0

    def compose(self) -> ComposeResult:
        """One pane."""
        yield LinePane(id="help")

    async def on_resize(self) -> None:
        """Lays the help out for this size."""
        self.action_scroll(0)
        await self.start_taking_keys()

    def action_scroll(self, lines: int) -> None:
        """Moves through the help."""
        width, height = self.app.size
        every = help_lines(width)
        room = max(height - 1, 1)
        self._top = max(0, min(self._top + lines, len(every) - room))
        more = "j/k more  " if len(every) > room else ""
        foot = [Span(f" {more}q or Esc: back to the trace", "dim")]
        self.query_one(LinePane).show([*every[self._top : self._top + room], foot])

    def action_close(self) -> None:
        """Goes back."""
        self.app.pop_screen()
