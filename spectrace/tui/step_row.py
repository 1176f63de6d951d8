"""One line per step: what was proposed, how far it was accepted, what the target wanted.

Lays the line out for a width; takes what became of each token from `analysis.rejection`. Every glyph
stands for one status, so that nothing hangs on colour. Text of the trace is escaped in `Names`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from spectrace.analysis.rejection import NodeState, Status
from spectrace.format.records import Step
from spectrace.format.text import visible
from spectrace.tui.spans import Line, Role, Span, clip, clip_line, left, right, width_of

TokenView = Literal["text", "ids", "both"]

GLYPHS: dict[Status, str] = {
    "accepted": "=",
    "rejected": "x",
    "passed_over": "-",
    "not_reached": "·",
    "bonus": "+",
    "target": "+",
}
TOKEN_ROLES: dict[Status, Role] = {
    "accepted": "accepted",
    "rejected": "rejected",
    "passed_over": "dim",
    "not_reached": "dim",
    "bonus": "bonus",
    "target": "bonus",
}
LONGEST_TOKEN = 16
"""Cells of one token in a list; the detail pane shows more."""


class Names(Protocol):
    """Where token texts come from."""

    def token(self, token_id: int | None, *, draft: bool = False) -> str | None:
        """Text of a token with everything unprintable escaped, None when the trace has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns the list has at this width, and how wide they are."""

    width: int
    row: int
    """Cells of the step number."""
    request: int
    end: int
    """Cells of how the step ended, 0 = not shown."""
    time: int

    @property
    def tokens(self) -> int:
        """Cells left for the tokens."""
        fixed = (self.row, self.request, 5, self.end, self.time)
        return max(0, self.width - 2 - sum(cells + 1 for cells in fixed if cells))


def columns_for(width: int, total: int, longest_request: int) -> Columns:
    """Columns for a terminal's width; narrow ones give way to the tokens, which come last."""
    return Columns(
        width=width,
        row=max(4, len(f"{max(total - 1, 0):,}")),
        request=min(max(longest_request, 7), 16 if width >= 100 else 10) if width >= 56 else 0,
        end=9 if width >= 100 else 0,
        time=7 if width >= 72 else 0,
    )


def list_head(columns: Columns) -> Line:
    """Names of the columns and meaning of the glyphs."""
    parts = [right("step", columns.row)]
    parts += [left("request", columns.request)] if columns.request else []
    parts += [right("acc", 5)]
    parts += [left("end", columns.end)] if columns.end else []
    parts += [right("ms", columns.time)] if columns.time else []
    legend = "=accepted  xrejected→wanted  ·not reached  +target's own"
    if len(legend) > columns.tokens:
        legend = "=accepted xrejected→wanted ·unreached +target's"
    return clip_line([Span("  " + " ".join(parts) + " " + legend, "dim")], columns.width)


def step_line(
    row: int,
    step: Step | None,
    states: Sequence[NodeState],
    names: Names,
    columns: Columns,
    *,
    view: TokenView = "text",
    is_cursor: bool = False,
    is_named: bool = False,
) -> Line:
    """The line of one step.

    Args:
        row: number of the step in the trace.
        step: None where the file is damaged.
        states: of the step.
        names: token texts.
        columns: layout.
        view: tokens as text, ids or both.
        is_cursor: the cursor stands here.
        is_named: a finding names the step.
    """
    line = [
        Span(">" if is_cursor else " ", "strong"),
        Span("!" if is_named else " ", "warning"),
        Span(right(f"{row:,}", columns.row), "cursor" if is_cursor else "plain"),
    ]
    if step is None:
        return clip_line([*line, Span(" !! damaged: this step cannot be read", "warning")], columns.width)
    if columns.request:
        line.append(Span(" " + left(visible(step.request, limit=64), columns.request)))
    line.append(Span(" " + right(accept_text(step), 5), "strong"))
    if columns.end:
        line.append(Span(" " + left(end_text(step), columns.end), "dim"))
    if columns.time:
        line.append(Span(" " + right(_milliseconds(step.step_ns), columns.time), "dim"))
    tokens = _fitted(states, lambda state: _token_spans(state, names, view), _marks(step), columns.tokens)
    return clip_line([*line, Span(" "), *tokens], columns.width)


def accept_text(step: Step) -> str:
    """Accepted of proposed, for example 3/5."""
    drafted = len(step.proposal_ids or ())
    return f"{step.num_accepted}/{drafted}" if drafted else "-"


def end_text(step: Step) -> str:
    """How the step ended, in the trace's word."""
    return visible(step.final_kind, limit=24) if step.final_kind else "-"


def token_text(token_id: int | None, names: Names, view: TokenView, *, draft: bool = False) -> str:
    """A token as the list shows it; an id where the trace has no text."""
    if token_id is None:
        return "?"
    text = names.token(token_id, draft=draft) if view != "ids" else None
    if text is None:
        return str(token_id)
    if view == "both":
        return f"{token_id}:{text}"
    return text if text.strip() else f'"{text}"'


def _token_spans(state: NodeState, names: Names, view: TokenView) -> Line:
    role = TOKEN_ROLES[state.status]
    text = clip(token_text(state.token_id, names, view), LONGEST_TOKEN)
    spans = [Span(GLYPHS[state.status] + text, role)]
    if state.wanted_id is not None:
        wanted = clip(token_text(state.wanted_id, names, view), LONGEST_TOKEN)
        spans += [Span("→", "plain"), Span(wanted, "wanted")]
    return spans


def _marks(step: Step) -> list[str]:
    """What else a reader must know of a step."""
    words = [*(step.flags or ()), *([f"stop: {step.stop}"] if step.stop else [])]
    return [f"[{visible(word, limit=24)}]" for word in words if word]


def _fitted(
    states: Sequence[NodeState], spans: Callable[[NodeState], Line], marks: Sequence[str], width: int
) -> Line:
    """Tokens side by side; where they do not fit, the first ones go first, since the refusal matters.

    Only what is shown is laid out: a made-up step may hold any number of tokens.
    """
    refused = next((i for i, state in enumerate(states) if state.status == "rejected"), 0)
    first, used = refused, width_of(spans(states[refused])) if states else 0
    for index in range(refused - 1, -1, -1):
        used += width_of(spans(states[index])) + 1
        if used > width:
            break
        if used + len(_hidden(index)) <= width:
            first = index
    line: Line = [Span(_hidden(first), "dim")] if first else []
    used = width_of(line)
    for index in range(first, len(states)):
        piece = [*([Span(" ")] if index > first else []), *spans(states[index])]
        line += piece
        used += width_of(piece)
        if used > width:
            return clip_line(line, width)
    for mark in marks:
        line += [*([Span(" ")] if line else []), Span(mark, "dim")]
    return clip_line(line, width)


def _hidden(count: int) -> str:
    """So many tokens stand left of those that are shown, whatever became of them."""
    return f"‹{count} " if count else ""


def _milliseconds(nanoseconds: int | None) -> str:
    if nanoseconds is None:
        return "-"
    return f"{nanoseconds / 1e6:.1f}" if nanoseconds < 10**11 else ">99,999"
