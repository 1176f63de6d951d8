"""Where the reader stands in the list of steps, and the keys that move there: counts, pages, marks, jumps.

Knows rows and tokens and no widget: a screen that shows them says how (`put_cursor`, `show_place`,
`show_detail_soon`).
"""

from __future__ import annotations

from typing import Literal

from textual import events

from spectrace.tui.listed import Listed
from spectrace.tui.loader import Loader
from spectrace.tui.places import Places
from spectrace.tui.screens.asking import AskingScreen
from spectrace.tui.step_detail import first_position


class MovingScreen(AskingScreen):
    """A place in a trace.

    Args:
        loader: the trace.
        at: row to begin at.
    """

    def __init__(self, loader: Loader, at: int | None) -> None:
        super().__init__()
        self.loader = loader
        self.listed = Listed(loader)
        self.row = max(0, min(at or 0, loader.total - 1))
        """Step under the cursor."""
        self.position = 0
        """Index of the token under the cursor, into the states of the step."""
        self.num_tokens = 0
        """States of the step."""
        self.places = Places()
        self._mark: Literal["set", "go"] | None = None
        """What the letter is for that comes next."""

    def put_cursor(self, index: int, scroll: int) -> None:
        """Shows the cursor on a place of the list."""
        raise NotImplementedError

    def page_rows(self) -> int:
        """Rows of a page."""
        raise NotImplementedError

    def show_detail_soon(self) -> None:
        """Shows the step when no further key comes at once."""
        raise NotImplementedError

    # --- moving ---

    def go_to(self, row: int, word: str = "", *, scroll: int = 0, position: int | None = None) -> None:
        """Puts the cursor on a step that is listed, and on its first rejected token."""
        self.word = word
        if len(self.listed):
            index = self.listed.index_of(row)
            self.row = self.listed.row_at(index)
            self.put_cursor(index, scroll)
        _, states = self.loader.states(self.row) if len(self.listed) else (None, ())
        self.num_tokens = len(states)
        self.position = first_position(states) if position is None else position
        self.show_place()
        self.show_detail_soon()
        self.viewer.cursor_moved(self.row, word)

    def jump_to(self, row: int, word: str = "", *, position: int | None = None) -> None:
        """Goes where it is worth coming back from."""
        self.places.jump(self.row)
        self.go_to(row, ": ".join(filter(None, (word, self.left_out(row)))), position=position)

    def left_out(self, row: int) -> str:
        """What is said of a step that the filter leaves out, "" of one that is listed."""
        kept = self.listed.filter
        is_known = kept is not None and (kept.is_done or row < kept.end)
        return (
            f"step {row:,} is not listed: u undoes the filter"
            if is_known and not self.listed.holds(row)
            else ""
        )

    def action_move(self, rows: int) -> None:
        """Next or previous steps."""
        self._go_along(rows * (self.taken_count() or 1))

    def action_page_move(self, pages: float) -> None:
        """Pages, or parts of one."""
        rows = round(pages * self.page_rows() * (self.taken_count() or 1))
        self._go_along(rows, scroll=rows)

    def _go_along(self, rows: int, scroll: int = 0) -> None:
        self.go_to(self.listed.row_at(self.listed.index_of(self.row) + rows), scroll=scroll)

    def action_go(self, row: int) -> None:
        """The first or last step of the list, or the one whose number was typed."""
        count = self.taken_count()
        if count is not None:
            self.go_to_number(count)
        else:
            self.jump_to(self.listed.row_at(row % max(len(self.listed), 1)))

    def go_to_number(self, number: int) -> None:
        """The step with a number."""
        if number >= self.loader.total:
            self.jump_to(self.loader.total - 1, f"the last step is {self.loader.total - 1:,}")
        else:
            self.jump_to(number)

    def action_position(self, tokens: int) -> None:
        """Next or previous tokens of the step."""
        wanted = self.position + tokens * (self.taken_count() or 1)
        self.position = max(0, min(wanted, self.num_tokens - 1))
        self.say("")
        self.show_detail_soon()

    # --- marks and jumps ---

    def action_mark(self, what: Literal["set", "go"]) -> None:
        """Waits for the letter of a mark."""
        self.taken_count()
        self._mark = what
        self.say(
            "mark this step as: a letter"
            if what == "set"
            else "go to a mark: its letter, or ' for the last jump"
        )

    async def take_text(self, event: events.Key) -> bool:
        """The letter of a mark, then what every screen takes."""
        what, self._mark = self._mark, None
        if what is None:
            return await super().take_text(event)
        letter = event.character or ""
        if what == "set" and letter.isalpha():
            self.places.marks[letter] = self.row
            self.say(f"step {self.row:,} is mark {letter}")
        elif what == "set" and event.key != "escape":
            self.say("a mark is a letter")
        elif what == "go" and letter == "'":
            self.jump_to(self.places.last)
        elif what == "go" and letter in self.places.marks:
            self.jump_to(self.places.marks[letter], f"mark {letter}")
        else:
            known = " ".join(sorted(self.places.marks))
            self.say(
                "" if event.key == "escape" else f"no such mark; there are: {known or 'none, m a sets one'}"
            )
        return True

    def action_jump_back(self) -> None:
        """Where the newest jump began."""
        self.taken_count()
        row = self.places.back(self.row)
        self.say("this is where the first jump began") if row is None else self.go_to(row, self.left_out(row))
