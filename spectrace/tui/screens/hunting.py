"""The keys that look for a step: rejections, requests, findings, search and filter.

What is looked for, and the worker that goes on with it, stand in `hunt`; this says where it leads.
"""

from __future__ import annotations

from collections.abc import Callable

from spectrace.analysis.rejection import node_states, rejected_state
from spectrace.format.records import Step
from spectrace.format.text import visible
from spectrace.tui.findings import Findings
from spectrace.tui.hunt import Arrival, Hunt
from spectrace.tui.loader import Loader
from spectrace.tui.messages import DiagnosisMade, TaskAdvanced
from spectrace.tui.needles import TextNeedle
from spectrace.tui.screens.moving import MovingScreen
from spectrace.tui.search import StepWalk
from spectrace.tui.summary import typed_room

_ORDER = {1: "next", -1: "previous"}
_NO_REJECTION: dict[float | None, str] = {
    None: "no step has a proposal: nothing was refused",
    1.0: "no rejection: every proposal was accepted whole",
}
"""Acceptance rate of a trace without a rejection -> what is said."""
_CUT_SHORT = "no step says that a token was refused"
"""Of a trace whose proposals were cut short, or tell nothing of their end."""
_MOST_STEPS = 1000
"""Rejections that one count may skip."""


class HuntingScreen(MovingScreen):
    """Looks for steps.

    Args:
        loader: the trace.
        at: row to begin at.
    """

    def __init__(self, loader: Loader, at: int | None) -> None:
        super().__init__(loader, at)
        self.hunt = Hunt(
            loader,
            self.listed,
            lambda task: self.viewer.run_task(task),
            lambda: self.viewer.stop_search(),
        )
        self._anchor: int | None = None
        """The step that the cursor goes back to as soon as a filter has come there."""
        self._asked: Callable[[Findings], None] | None = None
        """What waits for the diagnosis."""

    def show_list(self) -> None:
        """The list has other steps, or more of them."""
        raise NotImplementedError

    # --- rejections and requests ---

    def action_first_rejection(self) -> None:
        """The first step of the list with a rejection."""
        self.taken_count()
        if self.listed.filter is not None:
            self._walk(_is_rejected, 0, 1, "rejection among the steps that are listed")
            return
        found = self.loader.next_rejected(0) if self.loader.total else None
        if found is None:
            self.say(_NO_REJECTION.get(self.loader.facts.acceptance_rate, _CUT_SHORT))
        else:
            self.jump_to(found, "first rejection")

    def action_rejection(self, direction: int) -> None:
        """The next or previous step with a rejection."""
        if self.listed.filter is not None:
            self._walk(_is_rejected, self.row + direction, direction, f"{_ORDER[direction]} rejection")
            return
        at: int | None = self.row
        row = self.row
        for _ in range(min(self.taken_count() or 1, _MOST_STEPS)):
            start = row + direction
            is_inside = 0 <= start < self.loader.total
            at = self.loader.next_rejected(start, forward=direction > 0) if is_inside else None
            if at is None:
                break
            row = at
        where = "after" if direction > 0 else "before"
        self.jump_to(row, f"no rejection {where} this step" if at is None else "")

    def action_same_request(self, direction: int) -> None:
        """The next or previous step of the request under the cursor."""
        step = self._step_here()
        if step is None:
            return
        is_last = _is_end if direction > 0 else _is_begin
        if is_last(step):
            self.taken_count()
            stop = visible(step.stop or "", limit=20)
            self.say(f"the request ends here: {stop}" if direction > 0 else "the request begins here")
            return
        name = f"{_ORDER[direction]} step of this request"
        self._walk(
            lambda other: other.request == step.request, self.row + direction, direction, name, is_last
        )

    def action_request(self, direction: int) -> None:
        """The first step of the next or previous request."""
        step = self._step_here()
        if step is not None:
            name = f"{_ORDER[direction]} request that begins in this trace"
            self._walk(
                lambda other: other.step == 0 and other.request != step.request,
                self.row + direction,
                direction,
                name,
            )

    def go_to_request(self, name: str) -> None:
        """The first step of a request, by its name or a part of it that no other has."""
        shown = visible(name, limit=40)
        found = self.loader.requests_named(name)
        if len(found) == 1:
            self._walk(lambda step: step.request == found[0], 0, 1, f"request {shown} in the list")
        elif found:
            names = ", ".join(visible(one, limit=24) for one in found[:3])
            self.say(
                f"{len(found):,} requests have {shown} in their name: {names}{' …' if found[3:] else ''}"
            )
        else:
            self.say(f"no request has {shown} in its name; R lists them")

    def _step_here(self) -> Step | None:
        step = self.loader.step(self.row) if len(self.listed) else None
        if step is None:
            self.say("no request is known here")
        return step

    def _walk(
        self,
        fits: Callable[[Step], bool],
        start: int,
        direction: int,
        name: str,
        is_last: Callable[[Step], bool] = lambda step: False,
    ) -> None:
        walk = StepWalk(
            self.loader,
            self.listed,
            fits,
            start,
            forward=direction > 0,
            name=name,
            count=self.taken_count() or 1,
            is_last=is_last,
        )
        self._arrive(self.hunt.walk(walk))

    # --- findings ---

    def action_finding(self, direction: int) -> None:
        """The next or previous step that a finding names."""
        self.ask_for_finding(direction, self.taken_count() or 1)

    def ask_for_finding(self, direction: int, count: int, *, with_this: bool = False) -> None:
        """As `action_finding`; `with_this` begins at the step under the cursor and not behind it."""
        self._ask(lambda findings: self._go_to_finding(findings, direction, count, with_this=with_this))

    def action_cliff(self) -> None:
        """Where acceptance falls with the length of the context."""
        self.taken_count()
        self._ask(self._go_to_cliff)

    def _ask(self, go: Callable[[Findings], None]) -> None:
        """Goes on with the diagnosis, now or when it is made."""
        findings = self.viewer.findings
        if findings is not None and findings.total == self.loader.total:
            go(findings)
            return
        self._asked = go
        self.viewer.diagnose()
        self.show_place()

    def on_diagnosis_made(self, message: DiagnosisMade) -> None:
        """The rules have answered."""
        asked, self._asked = self._asked, None
        self.show_list()
        if message.findings is None:
            self.say(message.error)
        elif asked is not None:
            asked(message.findings)

    def _go_to_finding(self, findings: Findings, direction: int, count: int, *, with_this: bool) -> None:
        start = self.row - direction if with_this else self.row
        row = findings.next_row(start, count, forward=direction > 0)
        if row is not None:
            self.jump_to(row, findings.words_of(row))
        elif not findings.diagnosis.findings:
            self.say("no finding: that is no proof of health, :overview says what could not be checked")
        elif not findings.rows:
            self.say("no finding names a step; :overview lists them")
        else:
            here = findings.words_of(self.row)
            where = "after" if direction > 0 else "before"
            self.say(f"no finding names a step {where} this one" + (f"; this one: {here}" if here else ""))

    def _go_to_cliff(self, findings: Findings) -> None:
        row, words = findings.cliff()
        self.say(words) if row is None else self.jump_to(row, words)

    # --- search ---

    def search_for(self, text: str) -> None:
        """Goes to the next step that matches; nothing typed: the next match of the last search."""
        if text:
            self._arrive(self.hunt.search_for(text, self.row))
        elif self.hunt.search is not None:
            self.action_match(1)
        else:
            self.show_place()

    def action_match(self, direction: int) -> None:
        """The next or previous match."""
        count = self.taken_count() or 1
        self._arrive(self.hunt.next_match(self.row, count, forward=direction > 0))

    def action_search_token(self) -> None:
        """The next step with the token under the cursor."""
        self.taken_count()
        _, states = self.loader.states(self.row) if len(self.listed) else (None, ())
        token = states[self.position].token_id if self.position < len(states) else None
        if token is None:
            self.say("no token is known here")
            return
        text = self.loader.token(token)
        shown = f"{token}" if text is None else f'{token} "{text}"'
        self._arrive(self.hunt.search_needle(TextNeedle(shown, self.loader, only_id=token), self.row))

    # --- filter ---

    def filter_by(self, text: str) -> None:
        """Lists only what fits."""
        wrong = self.hunt.filter_by(text)
        if wrong:
            self.say(wrong)
        else:
            self._relist()

    def action_undo(self) -> None:
        """What was listed before the last filter."""
        self.taken_count()
        if self.listed.undo():
            self._relist()
        else:
            self.say("there is no filter to undo")

    def _relist(self) -> None:
        self._anchor = self.row
        self.hunt.relist(self.row)
        self._settle_list()

    def _settle_list(self) -> None:
        """The list has more steps: keeps the cursor near where it was."""
        self.show_list()
        anchor, kept = self._anchor, self.listed.filter
        if anchor is not None:
            self.go_to(anchor, self.word)
            is_there = kept is None or kept.is_done or self.row >= anchor
            self._anchor = None if is_there else anchor

    def go_to(self, row: int, word: str = "", *, scroll: int = 0, position: int | None = None) -> None:
        """As `MovingScreen`; the reader has chosen where to be."""
        self._anchor = None
        super().go_to(row, word, scroll=scroll, position=position)

    def jump_to(self, row: int, word: str = "", *, position: int | None = None) -> None:
        """As `MovingScreen`; a match that is found later does not pull the reader back."""
        self.hunt.stop_waiting()
        super().jump_to(row, word, position=position)

    def say(self, word: str) -> None:
        """As `MovingScreen`; a page above that follows the cursor says it too."""
        super().say(word)
        self.viewer.cursor_moved(self.row, word)

    # --- what comes from the background ---

    def on_task_advanced(self, message: TaskAdvanced) -> None:
        """A search, a walk or a filter came further."""
        arrival = self.hunt.advanced(message.task, self.row)
        if message.task is self.listed.filter:
            self._settle_list()
        self._arrive(arrival)

    def stop(self) -> bool:
        """Stops what runs; whether anything did."""
        was_asking, self._asked = self._asked is not None, None
        if was_asking:
            self.viewer.stop_diagnosis()
        return self.hunt.stop() | was_asking

    def words(self) -> list[str]:
        """What the status row says of filter, search and whatever else runs."""
        both = self.hunt.search is not None and self.listed.filter is not None
        room = typed_room(self.app.size.width)
        return [*self.hunt.words(self.row, room // 2 if both else room), *self.hunting_words()]

    def hunting_words(self) -> list[str]:
        """What is being looked for, a page above says it too."""
        asking = ["asking every rule of the diagnosis, Esc stops"] if self._asked is not None else []
        return [*self.hunt.walk_words(), *asking]

    def _arrive(self, arrival: Arrival | None) -> None:
        if arrival is None:
            self.show_place()
        elif arrival.row is None:
            self.say(arrival.word)
        else:
            super().jump_to(arrival.row, arrival.word)


def _is_rejected(step: Step) -> bool:
    return rejected_state(node_states(step)) is not None


def _is_begin(step: Step) -> bool:
    return step.step == 0


def _is_end(step: Step) -> bool:
    return step.stop is not None
