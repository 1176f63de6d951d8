"""The main screen: the list of steps, and the step under the cursor below it.

Lays the terminal out and hands lines to the widgets. Where the reader is and where keys lead stands in
`moving` and `hunting`; what a line says is made elsewhere; what takes long runs in the app's workers.
"""

from __future__ import annotations

from time import monotonic

from textual.app import ComposeResult
from textual.timer import Timer

from spectrace.tui.findings import Findings
from spectrace.tui.layout import layout_for
from spectrace.tui.loader import HeaderFacts, Loader
from spectrace.tui.messages import LineClicked
from spectrace.tui.minimap import rejected_shares
from spectrace.tui.screens.hunting import HuntingScreen
from spectrace.tui.spans import Line, Span
from spectrace.tui.step_detail import detail_lines
from spectrace.tui.step_row import TokenView, columns_for, list_head, step_line
from spectrace.tui.summary import (
    empty_lines,
    header_line,
    hint_line,
    minimap_line,
    nothing_listed_lines,
    offer_line,
    place_text,
    status_line,
)
from spectrace.tui.widgets.line_list import LineList
from spectrace.tui.widgets.line_pane import LinePane

DETAIL_DELAY = 0.04
"""Keys that come faster than this, in seconds, draw two lines: the detail pane waits for the last of them."""
_VIEWS: tuple[TokenView, ...] = ("text", "ids", "both")

_LOSSES = {
    "gone": "the file is gone",
    "replaced": "another file has its name",
    "cut": "the file is shorter than it was",
}


class StepsScreen(HuntingScreen):
    """Reads a trace step by step.

    Args:
        loader: the trace.
        at: row to begin at.
        scrolls_by_line: see `LineList`.
        word: what is to be said first.
    """

    def __init__(self, loader: Loader, *, at: int | None, scrolls_by_line: bool, word: str = "") -> None:
        super().__init__(loader, at)
        self.view: TokenView = "text"
        self.is_zoomed = False
        self._facts: HeaderFacts = loader.facts
        self._scrolls_by_line = scrolls_by_line
        self._detail_timer: Timer | None = None
        self._moved_at = 0.0
        self._shares: list[float | None] = []
        self._first_word = word
        self._findings: Findings | None = None
        """What is marked in the list."""

    def compose(self) -> ComposeResult:
        """Header, minimap, column names, list, detail, status, hints."""
        yield LinePane(id="header")
        yield LinePane(id="minimap")
        yield LinePane(id="head")
        yield LineList(self._list_line, scrolls_by_line=self._scrolls_by_line, id="steps")
        yield LinePane(id="detail")
        yield LinePane(id="status")
        yield LinePane(id="hints")

    @property
    def steps(self) -> LineList:
        """The list."""
        return self.query_one(LineList)

    def _pane(self, name: str) -> LinePane:
        return self.query_one(f"#{name}", LinePane)

    # --- what moving asks for ---

    def put_cursor(self, index: int, scroll: int) -> None:
        """Shows the cursor on a place of the list."""
        self.steps.set_cursor(index, scroll=scroll)

    def page_rows(self) -> int:
        """Rows of a page."""
        return self.layout_now.list or self.layout_now.detail

    def show_detail_soon(self) -> None:
        """Shows the step, of keys that come fast the last one's."""
        if self._detail_timer is not None:
            self._detail_timer.stop()
        if monotonic() - self._moved_at < DETAIL_DELAY:
            self._detail_timer = self.set_timer(DETAIL_DELAY, self._show_detail)
        else:
            self._show_detail()
        self._moved_at = monotonic()

    def show_list(self) -> None:
        """The list has other steps, or more of them, or findings name some of them."""
        self._findings = self.viewer.findings
        self.steps.set_total(len(self.listed) or len(self._nothing_lines()))
        self.steps.redraw()

    # --- lines ---

    def _nothing_lines(self) -> list[Line]:
        """What the list says where a filter keeps nothing."""
        kept = self.listed.filter
        if kept is None or not self.loader.total:
            return []
        return nothing_listed_lines(self.app.size.width, is_scanning=not kept.is_done)

    def _list_line(self, index: int, is_cursor: bool) -> Line:
        if not len(self.listed):
            return self._nothing_lines()[index]
        row = self.listed.row_at(index)
        step, states = self.loader.states(row)
        return step_line(
            row,
            step,
            states,
            self.loader,
            self._columns,
            view=self.view,
            is_cursor=is_cursor,
            is_named=self._findings is not None and row in self._findings.rows,
        )

    def _lay_out(self) -> None:
        """Shares out the lines of the terminal, and what hangs on the width."""
        width, height = self.app.size
        self.layout_now = layout_for(width, height, self.loader.total, is_zoomed=self.is_zoomed)
        self._columns = columns_for(width, self.loader.total, self.loader.longest_request)
        for name in ("minimap", "detail", "hints"):
            pane, lines = self._pane(name), getattr(self.layout_now, name)
            pane.styles.height = lines
            pane.display = lines > 0
        is_listed = self.layout_now.list > 0
        self.steps.display = self._pane("head").display = is_listed
        self.show_list()
        self._shares = rejected_shares(self.loader, width) if self.layout_now.minimap else []

    def _show_all(self) -> None:
        width = self.app.size.width
        self._pane("header").show([header_line(self._facts, width)])
        self._pane("head").show([list_head(self._columns)])
        self.show_place()
        self._show_detail()

    def show_place(self) -> None:
        """What follows every key: status, hints and minimap."""
        width = self.app.size.width
        total = self.loader.total
        cell = self.row * width // total if total else None
        self._pane("minimap").show([minimap_line(self._shares, cell)])
        if self.prompt is not None:
            typed = Span(self.prompt.shown(width - 2), "strong")
            self._pane("status").show([[typed, Span(" ", "cursor")]])
            self._pane("hints").show([offer_line(self.prompt.offers, width)])
            return
        self._pane("hints").show([hint_line(width, self.viewer.keys)])
        words = self.words()
        here = self.row if len(self.listed) else None
        is_tight = width < 60 and any(words)
        place = place_text(here, total, self.position, 0 if is_tight else self.num_tokens)
        if self.viewer.is_following:
            is_last = self.listed.index_of(self.row) >= len(self.listed) - 1
            words.append("following" if is_last else "following, held here: G goes on")
        words += ["" if self.view == "text" else {"ids": "token ids", "both": "ids and text"}[self.view]]
        self._pane("status").show([status_line(place, self.word, words, width, count=self.count)])

    def _show_detail(self) -> None:
        height = self.layout_now.detail
        if not height:
            return
        width = self.app.size.width
        if not self.loader.total:
            lines = empty_lines(self._facts, width)
        elif not len(self.listed):
            lines = [] if self.layout_now.list else self._nothing_lines()
        else:
            step, states = self.loader.states(self.row)
            lines = detail_lines(
                self.row,
                step,
                states,
                self.loader,
                position=self.position,
                width=width,
                height=height,
                wrong=() if self._findings is None else self._findings.wrong_in(self.row),
            )
        self._pane("detail").show(lines)

    # --- view and program ---

    def action_toggle_tokens(self) -> None:
        """Tokens as text, ids or both."""
        self.taken_count()
        self.view = _VIEWS[(_VIEWS.index(self.view) + 1) % len(_VIEWS)]
        self.steps.redraw()
        self.show_place()

    def action_open(self) -> None:
        """The step on a screen of its own."""
        self.taken_count()
        if not self.viewer.open_page("step"):
            self._set_zoom(True)

    def action_zoom(self) -> None:
        """The step's pane on the whole screen, and back."""
        self.taken_count()
        self._set_zoom(not self.is_zoomed)

    def action_back(self) -> None:
        """Stops what runs, else closes the step, else forgets count and search."""
        self.taken_count()
        if self.stop():
            self.say("stopped")
        elif self.is_zoomed:
            self._set_zoom(False)
        else:
            self.hunt.search = None
            self.say("")

    def _set_zoom(self, is_zoomed: bool) -> None:
        self.is_zoomed = is_zoomed
        self._lay_out()
        self._show_all()
        self.steps.set_cursor(self.listed.index_of(self.row))

    def action_copy(self) -> None:
        """Shows the step as JSON, to be copied."""
        self.taken_count()
        step = self.loader.step(self.row) if len(self.listed) else None
        if step is None:
            self.say("there is no whole step here to copy")
        else:
            from spectrace.format.jsonl import json_line, step_object

            self.viewer.offer_copy(json_line(step_object(step)), f"step {self.row:,} as JSON")

    def action_copy_all(self) -> None:
        """As `action_copy`."""
        self.action_copy()

    def action_interrupt(self) -> None:
        """Stops what runs, else quits."""
        if self.stop():
            self.say("stopped")
        else:
            self.app.exit()

    def action_leave(self) -> None:
        """Quits: there is no screen below this one."""
        self.app.exit()

    # --- following ---

    def action_follow(self) -> None:
        """Follows the trace while it grows, or stops."""
        self.taken_count()
        if self.viewer.is_following:
            self.viewer.stop_following()
            self.say("no longer following")
        elif self._facts.state == "closed":
            self.say("this trace is closed: no step will be added")
        else:
            self.viewer.follow()
            self._facts = self.loader.facts
            self._show_all()
            is_alone = self._facts.state == "unclosed"
            self.go_to(self.loader.total - 1, "no recorder writes here now" if is_alone else "")

    def on_trace_grew(self) -> None:
        """New steps, or the writer is gone."""
        was_last = self.listed.index_of(self.row) >= self.steps.total - 1
        before, self._facts = self._facts.state, self.loader.facts
        self.hunt.find_listed()
        self._lay_out()
        if self._facts.state != before:
            is_gone = self._facts.state == "unclosed"
            self.word = "the recorder ended without closing" if is_gone else "the recording was closed"
        loss = self.loader.loss
        if loss:
            self.viewer.stop_following()
            self.word = f"no longer following: {_LOSSES[loss]}, no step will be added"
        self._show_all()
        self.viewer.read_page_again()
        if was_last and self.viewer.is_following:
            self.go_to(self.loader.total - 1, self.word)

    def on_requests_counted(self) -> None:
        """The header can say how many requests there are."""
        self._facts = self.loader.facts
        self._pane("header").show([header_line(self._facts, self.app.size.width)])

    # --- what Textual tells ---

    def on_screen_resume(self) -> None:
        """The screen above may have asked for the findings."""
        if self._early is None and self.viewer.findings != self._findings:
            self.show_list()
            self.show_detail_soon()

    def on_line_clicked(self, message: LineClicked) -> None:
        """The mouse points at a step."""
        self.go_to(self.listed.row_at(message.index))

    async def on_resize(self) -> None:
        """Lays everything out for this size."""
        self._lay_out()
        self._show_all()
        if self._early is not None:
            self.call_after_refresh(self._begin)

    async def _begin(self) -> None:
        """The list has its height."""
        if self._early is None:  # Two sizes came before the first of them was drawn.
            return
        self.go_to(self.row, self._facts.problems[0] if self._facts.problems else self._first_word)
        self._show_detail()
        self.viewer.begin()
        await self.start_taking_keys()
        self.viewer.count_requests()
