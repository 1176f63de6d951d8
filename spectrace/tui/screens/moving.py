"""Where the reader stands, and every key that goes elsewhere: counts, pages, rejections, requests, search.

Knows rows and tokens and no widget: a screen that shows them says how (`put_cursor`, `show_place`,
`show_detail_soon`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from textual import events

from spectrace.format.records import Step
from spectrace.tui.hunt import Arrival, Hunt
from spectrace.tui.loader import Loader
from spectrace.tui.messages import SearchAdvanced
from spectrace.tui.prompt import Prompt
from spectrace.tui.screens.key_screen import KeyScreen
from spectrace.tui.search import Search, StepWalk
from spectrace.tui.step_detail import first_position

if TYPE_CHECKING:
    from spectrace.tui.viewer import Viewer

_MOST_DIGITS = 12
_ORDER = {1: "next", -1: "previous"}


class MovingScreen(KeyScreen):
    """A place in a trace.

    Args:
        loader: the trace.
        at: row to begin at.
    """

    def __init__(self, loader: Loader, at: int | None) -> None:
        super().__init__()
        self.loader = loader
        self.row = max(0, min(at or 0, loader.total - 1))
        """Step under the cursor."""
        self.position = 0
        """Index of the token under the cursor, into the states of the step."""
        self.num_tokens = 0
        """States of the step."""
        self.count = ""
        """Digits typed so far."""
        self.word = ""
        """What is to be said until the next key."""
        self.prompt: Prompt | None = None
        self.hunt = Hunt(loader, self._run_search, self._stop_search)
        self._history: list[str] = []

    @property
    def viewer(self) -> Viewer:
        """The app."""
        return cast("Viewer", self.app)

    def put_cursor(self, row: int, scroll: int) -> None:
        """Shows the cursor on a row."""
        raise NotImplementedError

    def page_rows(self) -> int:
        """Rows of a page."""
        raise NotImplementedError

    def show_place(self) -> None:
        """Shows what follows every key."""
        raise NotImplementedError

    def show_detail_soon(self) -> None:
        """Shows the step when no further key comes at once."""
        raise NotImplementedError

    def _run_search(self, task: Search | StepWalk) -> None:
        self.viewer.run_search(task)

    def _stop_search(self) -> None:
        self.viewer.stop_search()

    # --- moving ---

    def go_to(self, row: int, word: str = "", *, scroll: int = 0) -> None:
        """Puts the cursor on a step, and on its first rejected token."""
        self.word = word
        if self.loader.total:
            self.row = max(0, min(row, self.loader.total - 1))
            self.put_cursor(self.row, scroll)
            _, states = self.loader.states(self.row)
            self.position = first_position(states)
            self.num_tokens = len(states)
        self.show_place()
        self.show_detail_soon()

    def say(self, word: str) -> None:
        """Shows a word in the status row until the next key."""
        self.word = word
        self.show_place()

    def taken_count(self) -> int | None:
        """The count that was typed, which is used up by the key that asks."""
        count, self.count = self.count, ""
        return int(count) if count else None

    def action_move(self, rows: int) -> None:
        """Next or previous steps."""
        self.go_to(self.row + rows * (self.taken_count() or 1))

    def action_page(self, pages: float) -> None:
        """Pages, or parts of one."""
        rows = round(pages * self.page_rows() * (self.taken_count() or 1))
        self.go_to(self.row + rows, scroll=rows)

    def action_go(self, row: int) -> None:
        """The first or last step, or the one whose number was typed."""
        count = self.taken_count()
        if count is not None and count >= self.loader.total:
            self.go_to(self.loader.total - 1, f"the last step is {self.loader.total - 1:,}")
        else:
            self.go_to(count if count is not None else row % max(self.loader.total, 1))

    def action_position(self, tokens: int) -> None:
        """Next or previous tokens of the step."""
        _, states = self.loader.states(self.row) if self.loader.total else (None, ())
        wanted = self.position + tokens * (self.taken_count() or 1)
        self.position = max(0, min(wanted, len(states) - 1))
        self.num_tokens = len(states)
        self.say("")
        self.show_detail_soon()

    # --- hunting ---

    def action_first_rejection(self) -> None:
        """The first step with a rejection."""
        self.taken_count()
        found = self.loader.next_rejected(0) if self.loader.total else None
        if found is None:
            self.say("no rejection: every proposal was accepted whole")
        else:
            self.go_to(found, "first rejection")

    def action_rejection(self, direction: int) -> None:
        """The next or previous step with a rejection."""
        row: int | None = self.row
        for _ in range(min(self.taken_count() or 1, 1000)):
            start = self.row + direction
            is_inside = 0 <= start < self.loader.total
            row = self.loader.next_rejected(start, forward=direction > 0) if is_inside else None
            if row is None:
                break
            self.row = row
        where = "after" if direction > 0 else "before"
        self.go_to(self.row, f"no rejection {where} this step" if row is None else "")

    def action_same_request(self, direction: int) -> None:
        """The next or previous step of the request under the cursor."""
        step = self._step_here()
        if step is not None:
            name = f"{_ORDER[direction]} step of this request"
            self._walk_to(lambda other: other.request == step.request, direction, name)

    def action_request(self, direction: int) -> None:
        """The first step of the next or previous request."""
        step = self._step_here()
        if step is not None:
            self._walk_to(
                lambda other: other.step == 0 and other.request != step.request,
                direction,
                f"{_ORDER[direction]} request that begins in this trace",
            )

    def _step_here(self) -> Step | None:
        self.taken_count()
        step = self.loader.step(self.row) if self.loader.total else None
        if step is None:
            self.say("no request is known here")
        return step

    def _walk_to(self, fits: Callable[[Step], bool], direction: int, name: str) -> None:
        walk = StepWalk(self.loader, fits, self.row + direction, forward=direction > 0, name=name)
        self._arrive(self.hunt.walk(walk))

    def action_match(self, direction: int) -> None:
        """The next or previous match."""
        count = self.taken_count() or 1
        self._arrive(self.hunt.next_match(self.row, count, forward=direction > 0))

    def on_search_advanced(self, message: SearchAdvanced) -> None:
        """A search in the background came further."""
        self._arrive(self.hunt.advanced(message.task, self.row))

    def _arrive(self, arrival: Arrival | None) -> None:
        if arrival is None:
            self.show_place()
        elif arrival.row is None:
            self.say(arrival.word)
        else:
            self.go_to(arrival.row, arrival.word)

    # --- prompt and counts ---

    def take_text(self, event: events.Key) -> bool:
        """Prompt and counts."""
        if self.prompt is not None:
            self._type(event)
            return True
        if event.character is not None and event.character in "0123456789":
            self.count = (self.count + event.character)[:_MOST_DIGITS]
            self.show_place()
            return True
        self.word = ""
        return False

    def _type(self, event: events.Key) -> None:
        prompt = self.prompt
        assert prompt is not None
        outcome = prompt.take(event.key, event.character)
        if outcome != "typing":
            self.prompt = None
        if outcome == "done" and prompt.sign == "/":
            self._search_for(prompt.text)
        elif outcome == "done":
            self._obey(prompt.text.strip())
        else:
            self.show_place()

    def _search_for(self, text: str) -> None:
        if text:
            self._arrive(self.hunt.search_for(text, self.row))
        elif self.hunt.search is not None:
            self.action_match(1)
        else:
            self.show_place()

    def _obey(self, command: str) -> None:
        digits = command.replace(",", "").replace("_", "")
        if digits.isdecimal():
            self.count = digits[:_MOST_DIGITS]
            self.action_go(0)
        elif command in ("q", "quit"):
            self.app.exit()
        elif command:
            self.say(f"no such command: {command}; a number goes to that step, q quits")
        else:
            self.show_place()

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text goes to the prompt and nowhere else."""
        event.stop()
        if self.prompt is not None:
            self.prompt.paste(event.text)
            self.show_place()

    def action_prompt(self, sign: str) -> None:
        """Opens the prompt."""
        self.taken_count()
        self.prompt = Prompt(sign, self._history)
        self.show_place()
