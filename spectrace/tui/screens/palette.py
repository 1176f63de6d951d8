"""Every command by its words, with its key: type, choose, Enter."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult

from spectrace.tui.keys import Key
from spectrace.tui.prompt import Prompt
from spectrace.tui.screens.key_screen import KeyScreen
from spectrace.tui.spans import Line, Span, clip_line, left
from spectrace.tui.widgets.line_list import LineList
from spectrace.tui.widgets.line_pane import LinePane


def found_keys(keys: tuple[Key, ...], text: str) -> list[Key]:
    """The keys of which each word of a text is in the id, the command, the description or its other words.

    Those whose command begins with the text come first.
    """
    words = text.lower().split()
    found = [
        key
        for key in keys
        if all(word in f"{key.id} {key.command} {key.description} {key.also}".lower() for word in words)
    ]
    return sorted(found, key=lambda key: not (words and key.command.startswith(words[0])))


class PaletteScreen(KeyScreen):
    """Finds what the viewer can do."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Key] = []
        self._prompt = Prompt("", [])

    def compose(self) -> ComposeResult:
        """What is typed, what is found, how to go on."""
        yield LinePane(id="typed")
        yield LineList(self._line, scrolls_by_line=True, id="commands")
        yield LinePane(id="hints")

    @property
    def lines(self) -> LineList:
        """The list."""
        return self.query_one(LineList)

    def _line(self, index: int, is_cursor: bool) -> Line:
        key = self.found[index]
        line = [
            Span("> " if is_cursor else "  ", "strong"),
            Span(left(key.shown, 12), "strong"),
            Span(left(f":{key.command}" if key.command else "", 13), "dim"),
            Span(key.description),
        ]
        return clip_line(line, self.app.size.width)

    async def take_text(self, event: events.Key) -> bool:
        """Every key is for the palette."""
        if event.key in ("down", "up", "ctrl+n", "ctrl+p", "tab", "shift+tab"):
            forward = event.key in ("down", "ctrl+n", "tab")
            self.lines.set_cursor(self.lines.cursor + (1 if forward else -1))
            return True
        outcome = self._prompt.take(event.key, event.character)
        if outcome == "typing":
            self._show()
            return True
        key = self.found[self.lines.cursor] if outcome == "done" and self.found else None
        below = self.viewer.close_screen()
        if key is not None:
            await below.run_key(key)
        return True

    def _show(self) -> None:
        width = self.app.size.width
        self.found = found_keys(self.viewer.keys, self._prompt.text)
        typed = Span(" command: " + self._prompt.shown(width - 12), "strong")
        self.query_one("#typed", LinePane).show([[typed, Span(" ", "cursor")]])
        words = " Enter does it  ↑/↓ choose  Esc back" if self.found else " nothing is called so  Esc back"
        self.query_one("#hints", LinePane).show([clip_line([Span(words, "dim")], width)])
        self.lines.set_total(len(self.found))
        self.lines.redraw()
        self.lines.set_cursor(0)

    async def on_resize(self) -> None:
        """Lays the list out for this size."""
        self._show()
        await self.start_taking_keys()
