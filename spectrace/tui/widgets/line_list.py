"""A list of any length: a line is decoded and laid out when it comes into view."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from spectrace.tui.messages import LineClicked
from spectrace.tui.spans import Line
from spectrace.tui.widgets.line_pane import ROLE_CLASSES, RoleStyles

_MOST_CACHED = 2_000


class LineList(ScrollView):
    """Any number of lines, one of them under the cursor.

    Args:
        line: makes the line of a row; told whether the cursor stands there.
        scrolls_by_line: scroll by one line at an edge; otherwise by a third of the page, since a
            terminal that is sent the whole list should get it seldom.
    """

    COMPONENT_CLASSES = ROLE_CLASSES
    can_focus = False

    def __init__(self, line: Callable[[int, bool], Line], *, scrolls_by_line: bool, id: str) -> None:
        super().__init__(id=id)
        self.cursor = 0
        self.total = 0
        self._line = line
        self._scrolls_by_line = scrolls_by_line
        self._strips: dict[tuple[int, bool], Strip] = {}
        self._roles = RoleStyles(self)

    # --- data in ---

    def set_total(self, total: int) -> None:
        """Takes the number of rows."""
        self.total = total
        self.virtual_size = Size(self.size.width, total)

    def set_cursor(self, row: int, *, scroll: int = 0) -> None:
        """Moves the cursor to a row and the row into view; draws two lines when it was in view.

        Args:
            row: where to.
            scroll: lines by which the view moves along, as a page does.
        """
        row = max(0, min(row, self.total - 1))
        old, self.cursor = self.cursor, row
        if self._move_view(self.top + scroll) | self._bring_into_view(row):
            return
        for changed in {old, row}:
            self.refresh(Region(0, changed - self.top, self.size.width, 1))

    def redraw(self) -> None:
        """Every line may look different now."""
        self._strips.clear()
        self.refresh()

    @property
    def top(self) -> int:
        """The row on the first line."""
        return self.scroll_offset.y

    @property
    def page(self) -> int:
        """Rows in view."""
        return max(self.size.height, 1)

    def _bring_into_view(self, row: int) -> bool:
        """Scrolls where the row is out of view; whether it did."""
        top, page = self.top, self.page
        if top <= row < top + page:
            return False
        is_near = top - page <= row < top + 2 * page
        pace = 1 if self._scrolls_by_line else max(page // 3, 1)
        if not is_near:
            new = row - page // 3
        elif row < top:
            new = min(row, top - pace)
        else:
            new = max(row - page + 1, top + pace)
        return self._move_view(new)

    def _move_view(self, top: int) -> bool:
        old, top = self.top, max(0, min(top, self.total - self.page))
        if top != old:
            self.scroll_to(y=top, animate=False, immediate=True, force=True)
        return top != old

    # --- drawing ---

    def render_line(self, y: int) -> Strip:
        """One row of the list."""
        row = y + self.top
        key = (row, row == self.cursor)
        strip = self._strips.get(key)
        if strip is None:
            if len(self._strips) >= _MOST_CACHED:
                self._strips.clear()
            line = self._line(*key) if row < self.total else []
            strip = self._strips[key] = self._roles.strip(line, self.size.width)
        return strip

    def notify_style_update(self) -> None:
        """Looks the styles up again."""
        super().notify_style_update()
        self._roles.clear()
        self._strips.clear()

    # --- what Textual tells ---

    def on_resize(self) -> None:
        """Lays every line out anew and keeps the cursor in view."""
        self._strips.clear()
        self.set_total(self.total)
        self._bring_into_view(self.cursor)

    def on_click(self, event: events.Click) -> None:
        """Points at a line."""
        self.post_message(LineClicked(self.top + event.y))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Moves on."""
        event.stop()
        event.prevent_default()
        self.post_message(LineClicked(self.cursor + 3))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Moves back."""
        event.stop()
        event.prevent_default()
        self.post_message(LineClicked(self.cursor - 3))
