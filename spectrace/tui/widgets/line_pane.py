"""A pane of ready lines: header, minimap, detail, status and help are such panes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from spectrace.tui.spans import ROLES, Line, Role

ROLE_CLASSES = {f"role--{role}" for role in ROLES}


class RoleStyles:
    """The styles of one widget's roles, looked up once."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._styles: dict[Role, Style] = {}

    def clear(self) -> None:
        """The theme may have changed."""
        self._styles.clear()

    def strip(self, line: Line, width: int) -> Strip:
        """A line as Textual draws it, filled up to the width."""
        segments = [Segment(span.text, self[span.role]) for span in line if span.text]
        return Strip(segments).adjust_cell_length(width, self["plain"])

    def __getitem__(self, role: Role) -> Style:
        if role not in self._styles:
            self._styles[role] = self._widget.get_component_rich_style(f"role--{role}")
        return self._styles[role]


class LinePane(Widget):
    """Shows the lines it was given last."""

    COMPONENT_CLASSES = ROLE_CLASSES

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.lines: list[Line] = []
        self._roles = RoleStyles(self)

    def show(self, lines: Sequence[Line]) -> None:
        """Takes new lines; only those that differ are drawn."""
        old, self.lines = self.lines, list(lines)
        for y in range(max(len(old), len(self.lines))):
            if old[y : y + 1] != self.lines[y : y + 1]:
                self.refresh(Region(0, y, self.size.width, 1))

    def notify_style_update(self) -> None:
        """Looks the styles up again."""
        super().notify_style_update()
        self._roles.clear()

    def render_line(self, y: int) -> Strip:
        """One line of the pane."""
        line = self.lines[y] if y < len(self.lines) else []
        return self._roles.strip(line, self.size.width)
