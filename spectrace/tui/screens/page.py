"""The screen that shows any page: its lines, a cursor on one of them, search, the way to a step.

What the lines say is made in `pages`; what they are made of is read in `reading`.
"""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult

from spectrace.tui.keys import Key
from spectrace.tui.line_search import LineSearch
from spectrace.tui.messages import LineClicked
from spectrace.tui.pages.page import Page, PageLine
from spectrace.tui.screens.reading import ReadingScreen
from spectrace.tui.spans import Line, Span, clip_line, text_of
from spectrace.tui.summary import PAGE_HINTS, hint_line, offer_line, page_title, status_line, typed_room
from spectrace.tui.widgets.line_list import LineList
from spectrace.tui.widgets.line_pane import LinePane

_FOLLOWED = ("same_request", "request", "first_rejection", "rejection", "finding", "cliff", "jump_back")
"""What moves the cursor of the steps below, for pages that follow it."""

_AT_ONCE = ("view.back", "system.leave", "system.quit", "system.interrupt", "screen.steps")
"""Keys that do not wait until there are lines."""


def _leads(line: PageLine) -> bool:
    return line.row is not None or bool(line.page)


class PageScreen(ReadingScreen):
    """One page.

    Args:
        page: what is shown.
        row: the step under the cursor.
        scrolls_by_line: see `LineList`.
        word: what is to be said first.
    """

    def __init__(self, page: Page, row: int, *, scrolls_by_line: bool, word: str = "") -> None:
        super().__init__(page, row)
        self.word = word
        self.search = LineSearch()
        self._scrolls_by_line = scrolls_by_line
        self._lines: list[PageLine] = []
        self._is_on_token = False
        """The cursor stood on a token of the step that was left, and goes to one of the next."""

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

    # --- facts ---

    def show_facts(self) -> None:
        """There are lines, or a sentence that says why not."""
        self._lay_out()
        if self._early is not None:
            self.call_after_refresh(self._begin)
        elif self._is_on_token:
            self.lines.set_cursor(self._first_place())
        self._is_on_token = False
        self.show_place()

    def follow_cursor(self, row: int, word: str) -> None:
        """The cursor in the list of steps has moved, or could not."""
        if not self.page.follows_cursor:
            return
        self.word = word
        if row != self.row:
            here = self._lines[self.lines.cursor] if self._lines else PageLine([])
            self._is_on_token = here.position is not None
            self.row = row
            self.gather()
        self.show_place()

    def _lay_out(self) -> None:
        if not self.has_widgets:
            return
        if self.facts is not None:
            # Two cells are kept for the cursor.
            self._lines = self.page.lines(self.facts[0], max(self.app.size.width - 2, 1))
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
        words = [self.search.words(self._lines, self.lines.cursor, typed_room(width))]
        is_new = self.facts is None or self.page.follows_cursor
        words += ["reading… (Esc stops)" if self.gathering.is_running and is_new else ""]
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
        elif self.search.text:
            self.search.text = ""
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
        self.search.text = text or self.search.text
        self.action_match(1)

    def action_match(self, direction: int) -> None:
        """The next or previous line that holds what was searched."""
        count = self.taken_count() or 1
        if not self.search.text:
            self.say("nothing was searched yet: / searches")
            return
        found = self.search.next_match(self._lines, self.lines.cursor, direction, count)
        if found is None:
            self.show_place()
        else:
            index, went_round = found
            self._put_cursor(index, "went round" if went_round else "")

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
        if self.facts is None and not self.error and not self.gathering.is_running:
            self.gather()
        self._lay_out()
        self.show_place()

    async def _begin(self) -> None:
        """There are lines to move in."""
        if self._early is not None:
            if self.viewer.screen is self:
                self.lines.set_cursor(self._first_place())
                self.show_place()
            await self.start_taking_keys()

    def _first_place(self) -> int:
        """The line of the token under the cursor of the steps, else the first line that leads somewhere.

        The first lines stay in view: a line that is not among them is not gone to.
        """
        # The list may not know its height yet: title, status and hints take a line each.
        seen = list(enumerate(self._lines[: max(self.app.size.height - 3, 1)]))
        place = self.row, self.viewer.steps.position
        own = [at for at, line in seen if self.page.follows_cursor and (line.row, line.position) == place]
        leading = [at for at, line in seen if _leads(line)]
        return next(iter([*own, *leading]), self._first_text())

    def _first_text(self) -> int:
        """The first line, or the one below it where it is a rule."""
        return int(len(self._lines) > 1 and text_of(self._lines[0].spans).startswith("──"))
