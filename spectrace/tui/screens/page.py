"""The screen that shows any page: its lines, a cursor on one of them, search, the way to a step.

What the lines say is made in `pages`; the slow part runs beside the viewer and may be given up.
"""

from __future__ import annotations

from typing import Any

from textual import events
from textual.app import ComposeResult

from spectrace.format.text import visible
from spectrace.tui.background import Background, Outcome
from spectrace.tui.keys import Key
from spectrace.tui.messages import LineClicked, PageGathered
from spectrace.tui.pages.page import Page, PageLine
from spectrace.tui.screens.asking import AskingScreen
from spectrace.tui.spans import Line, Span, clip_line, text_of
from spectrace.tui.summary import PAGE_HINTS, hint_line, offer_line, page_title, status_line
from spectrace.tui.widgets.line_list import LineList
from spectrace.tui.widgets.line_pane import LinePane

_FOLLOWED = ("same_request", "request", "first_rejection", "rejection", "finding", "cliff", "jump_back")
"""What moves the cursor of the steps below, for pages that follow it."""

_AT_ONCE = ("view.back", "system.leave", "system.quit", "system.interrupt", "screen.steps")
"""Keys that do not wait until there are lines."""


def _leads(line: PageLine) -> bool:
    return line.row is not None or bool(line.page)


class PageScreen(AskingScreen):
    """One page.

    Args:
        page: what is shown.
        row: the step under the cursor.
        scrolls_by_line: see `LineList`.
        word: what is to be said first.
    """

    def __init__(self, page: Page, row: int, *, scrolls_by_line: bool, word: str = "") -> None:
        super().__init__()
        self.word = word
        self.page = page
        self.row = row
        self.needle = ""
        self.error = ""
        self._scrolls_by_line = scrolls_by_line
        self._lines: list[PageLine] = []
        self._facts: tuple[Any] | None = None
        """What was gathered, None before."""
        self.gathering = Background()

    def compose(self) -> ComposeResult:
        """Title, lines, status, hints."""
        yield LinePane(id="title")
        yield LineList(self._line, scrolls_by_line=self._scrolls_by_line, id="lines")
        yield LinePane(id="status")
        yield LinePane(id="hints")

    @property
    def lines(self) -> LineList:
        """The list."""
        return self.query_one(LineList)

    def _pane(self, name: str) -> LinePane:
        return self.query_one(f"#{name}", LinePane)

    @property
    def is_reading(self) -> bool:
        """Nothing is known to show yet, or something newer is on its way."""
        return self.gathering.is_running or (self._facts is None and not self.error)

    # --- facts ---

    def gather(self) -> None:
        """Asks for the facts, on a thread."""
        # Looked up here: on the thread, the screen may have been left and know no app any more.
        row, viewer, loader, page = self.row, self.viewer, self.viewer.loader, self.page
        total, known = self.viewer.gathered.get(page.id, (-1, None))
        if total == loader.total:
            self.post_message(PageGathered(row, Outcome(known)))
            return
        self.gathering.start(
            lambda stop: page.gather(loader.stoppable(stop), row),
            lambda outcome: viewer.tell(self, PageGathered(row, outcome)),
        )

    def on_page_gathered(self, message: PageGathered) -> None:
        """The facts are there, or a sentence says why not."""
        if message.row != self.row and self.page.follows_cursor:
            return
        self.error = message.outcome.error
        self._facts = None if self.error else (message.outcome.value,)
        if self._facts is not None and not self.page.follows_cursor:
            self.viewer.gathered[self.page.id] = (self.viewer.loader.total, self._facts[0])
        self._lay_out()
        if self._early is not None:
            self.call_after_refresh(self._begin)
        self.show_place()

    def follow_cursor(self, row: int, word: str) -> None:
        """The cursor in the list of steps has moved, or could not."""
        if not self.page.follows_cursor:
            return
        self.word = word
        if row != self.row:
            self.row = row
            self.gather()
        self.show_place()

    def _lay_out(self) -> None:
        if not self.has_widgets:
            return
        if self._facts is not None:
            # Two cells are kept for the cursor.
            self._lines = self.page.lines(self._facts[0], max(self.app.size.width - 2, 1))
        elif self.error:
            self._lines = [PageLine([Span(self.error, "warning")])]
        self.lines.set_total(len(self._lines))
        self.lines.redraw()
        self.lines.set_cursor(min(self.lines.cursor, max(len(self._lines) - 1, 0)))

    # --- lines ---

    def _line(self, index: int, is_cursor: bool) -> Line:
        mark = Span("> " if is_cursor else "  ", "strong")
        return clip_line([mark, *self._lines[index].spans], self.app.size.width)

    def show_place(self) -> None:
        """What follows every key: title, status, hints."""
        if not self.has_widgets:  # Drawn as soon as there is a size.
            return
        width = self.app.size.width
        self._pane("title").show(
            [page_title(self.page.title, self.row if self.page.follows_cursor else None, width)]
        )
        if self.prompt is not None:
            self._pane("status").show([[Span(self.prompt.shown(width - 2), "strong"), Span(" ", "cursor")]])
            self._pane("hints").show([offer_line(self.prompt.offers, width)])
            return
        words = [self._search_words()]
        words += ["reading… (Esc stops)" if self.gathering.is_running else ""]
        words += self.viewer.steps.hunting_words() if self.page.follows_cursor else []
        place = f"line {self.lines.cursor + 1:,}/{len(self._lines):,}" if self._lines else ""
        self._pane("status").show([status_line(place, self.word, words, width, count=self.count)])
        self._pane("hints").show([hint_line(width, self.viewer.keys, PAGE_HINTS)])

    def _put_cursor(self, index: int, word: str = "", scroll: int = 0) -> None:
        self.lines.set_cursor(max(0, min(index, len(self._lines) - 1)), scroll=scroll)
        self.say(word)

    # --- keys ---

    async def take_key(self, event: events.Key) -> None:
        """Keys wait for the lines that they move in; one that leads away does not.

        Behind others a letter may be part of a text that waits with them, so that only Esc and Ctrl-C
        are certain not to be.
        """
        key = self.viewer.by_key.get(event.key)
        is_alone = not self._early or event.key in ("escape", "ctrl+c")
        if self._early is not None and key is not None and key.id in _AT_ONCE and is_alone:
            self._early = []
            await self.run_key(key)
        else:
            await super().take_key(event)

    async def run_key(self, key: Key) -> None:
        """Moves in the lines; what looks for a step moves the cursor below, where the page follows it."""
        name = key.action.partition("(")[0]
        if self.page.follows_cursor and name in _FOLLOWED:
            self.viewer.steps.count, self.count = self.count, ""
            await self.app.run_action(key.action, default_namespace=self.viewer.steps)
            self.show_place()
        elif hasattr(self, f"action_{name}"):
            await super().run_key(key)
        else:
            self.say(f"{key.shown}: not in this screen")

    def action_move(self, lines: int) -> None:
        """Next or previous lines."""
        self._put_cursor(self.lines.cursor + lines * (self.taken_count() or 1))

    def action_page_move(self, pages: float) -> None:
        """Pages, or parts of one."""
        lines = round(pages * self.lines.page * (self.taken_count() or 1))
        self._put_cursor(self.lines.cursor + lines, scroll=lines)

    def action_go(self, line: int) -> None:
        """The first or last line, or the one whose number was typed."""
        count = self.taken_count()
        self._put_cursor(count - 1 if count else line % max(len(self._lines), 1))

    def action_open(self) -> None:
        """Where the line leads: a step in the list, or the page that shows more."""
        self.taken_count()
        line = self._lines[self.lines.cursor] if self._lines else None
        if line is None or not _leads(line):
            self.say(f"this line leads nowhere: {self._way_on()}")
        else:
            self.viewer.open_place(line)

    def _way_on(self) -> str:
        """What can be done where a line leads nowhere."""
        leading = [at for at, line in enumerate(self._lines) if _leads(line)]
        if not leading:
            return "S shows the steps"
        nearest = min(leading, key=lambda at: abs(at - self.lines.cursor))
        return f"line {nearest + 1:,} does ({nearest + 1}g)"

    def action_finding(self, direction: int) -> None:
        """The step of the next finding, in the list of steps; the one under its cursor counts."""
        count = self.taken_count() or 1
        self.viewer.show_steps()
        self.viewer.steps.ask_for_finding(direction, count, with_this=True)

    def action_cliff(self) -> None:
        """Where acceptance falls with the length of the context, in the list of steps."""
        self.taken_count()
        self.viewer.show_steps()
        self.viewer.steps.action_cliff()

    def action_back(self) -> None:
        """Stops the reading, else forgets the search, else goes back."""
        self.taken_count()
        if self.gathering.stop():
            self._early = None
            self.say("stopped: this screen is not complete")
        elif self.page.follows_cursor and self.viewer.steps.stop():
            self.say("stopped")
        elif self.needle:
            self.needle = ""
            self.say("")
        else:
            self.action_leave()

    def action_interrupt(self) -> None:
        """As `action_back`."""
        self.action_back()

    def action_leave(self) -> None:
        """Back to the screen below."""
        self.gathering.stop()
        self.viewer.close_screen()

    def action_copy(self) -> None:
        """Shows the line, to be copied."""
        self.taken_count()
        text = text_of(self._lines[self.lines.cursor].spans).strip() if self._lines else ""
        self.viewer.offer_copy(text, "this line") if text else self.say("this line is empty")

    def action_copy_all(self) -> None:
        """Shows every line, to be copied."""
        self.taken_count()
        lines = [text_of(line.spans).rstrip() for line in self._lines]
        self.viewer.offer_copy("\n".join([self.page.title, *lines]), "this screen")

    # --- search ---

    def search_for(self, text: str) -> None:
        """The next line that holds a text."""
        self.needle = text or self.needle
        self.action_match(1)

    def action_match(self, direction: int) -> None:
        """The next or previous line that holds what was searched."""
        count = self.taken_count() or 1
        found = self._matches()
        if not self.needle:
            self.say("nothing was searched yet: / searches")
        elif not found:
            self.show_place()
        else:
            here = self.lines.cursor
            ahead = [index for index in found if (index > here if direction > 0 else index < here)]
            ways = [*ahead, *found] if direction > 0 else [*reversed(ahead), *reversed(found)]
            self._put_cursor(ways[(count - 1) % len(ways)], "" if ahead else "went round")

    def _matches(self) -> list[int]:
        fold = self.needle == self.needle.lower()
        texts = (text_of(line.spans) for line in self._lines)
        return [i for i, text in enumerate(texts) if self.needle in (text.lower() if fold else text)]

    def _search_words(self) -> str:
        if not self.needle:
            return ""
        found = self._matches()
        place = sum(index <= self.lines.cursor for index in found)
        return f"/{visible(self.needle, limit=24)}: {f'{place} of {len(found)}' if found else 'no match'}"

    # --- what leads to the steps ---

    def filter_by(self, text: str) -> None:
        """Filters the steps, and shows them."""
        self.viewer.show_steps()
        self.viewer.steps.filter_by(text)

    def go_to_number(self, number: int) -> None:
        """A step by its number."""
        self.viewer.show_steps()
        self.viewer.steps.go_to_number(number)

    def go_to_request(self, name: str) -> None:
        """The first step of a request."""
        self.viewer.show_steps()
        self.viewer.steps.go_to_request(name)

    # --- what Textual tells ---

    def on_line_clicked(self, message: LineClicked) -> None:
        """The mouse points at a line."""
        self._put_cursor(message.index)

    async def on_resize(self) -> None:
        """Lays the lines out for this size."""
        if self._facts is None and not self.error and not self.gathering.is_running:
            self.gather()
        self._lay_out()
        self.show_place()

    async def _begin(self) -> None:
        """There are lines to move in."""
        if self._early is not None:
            # The first line that leads somewhere. The list may not know its height yet: title, status and
            # hints take a line each.
            if self.viewer.screen is self:
                first = next((i for i, line in enumerate(self._lines) if _leads(line)), 0)
                self.lines.set_cursor(first if first < self.app.size.height - 3 else self._first_text())
                self.show_place()
            await self.start_taking_keys()

    def _first_text(self) -> int:
        """The first line below the heading."""
        return min(1, max(len(self._lines) - 1, 0))
