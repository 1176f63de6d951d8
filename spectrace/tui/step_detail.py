"""Everything a trace says of one step, as lines: raw id, mapped id, text, target's pick, rank, log-probs.

Lays out what is recorded and what `analysis.rejection` says of it. A value that the trace lacks is
shown as `-`; what was not reached is dimmed.
"""

from __future__ import annotations

from collections.abc import Sequence

from spectrace.analysis.rejection import NodeState, item
from spectrace.format.records import Step
from spectrace.format.text import visible
from spectrace.tui.figures import number, whole
from spectrace.tui.spans import Line, Role, Span, clip, clip_line, left, right, width_of
from spectrace.tui.step_row import GLYPHS, TOKEN_ROLES, Names, end_text

Top = Sequence[tuple[int, float]]


def detail_lines(
    row: int,
    step: Step | None,
    states: Sequence[NodeState],
    names: Names,
    *,
    position: int = 0,
    width: int = 80,
    height: int = 10,
) -> list[Line]:
    """The detail pane.

    Args:
        row: number of the step in the trace.
        step: None where the file is damaged.
        states: of the step.
        names: token texts.
        position: index into `states` under the cursor.
        width: cells.
        height: lines; the table of tokens scrolls around the cursor when there are more.

    Returns:
        At most `height` lines of at most `width` cells.
    """
    if step is None:
        return [
            rule(f"step {row:,}", width),
            [Span("This part of the file is damaged; the steps around it are whole.", "warning")],
            [Span("spectrace repair TRACE -o OUT writes a trace of what is whole.", "dim")],
        ][:height]
    below = [line for line in _below(step, states, names, position) if line]
    # The columns beside the two tokens take 41 cells.
    token = min(max((width - 41) // 2, 9), 19 if width < 100 else 22)
    table = [
        _node_line(step, state, names, token, is_cursor=index == position)
        for index, state in enumerate(states)
    ]
    if width < 100:
        # The mark beside the position says the same as the words at the end.
        table = [line[:-1] for line in table]
    room = max(height - 2 - len(below), min(4, len(table)))
    shown = _window(table, position, room)
    # What is cut off at the end of a small pane is the least: what was committed stands in the table too.
    lines = [rule(_title(row, step), width), _table_head(token), *shown, *below]
    return [clip_line(line, width) for line in lines[: max(height, 1)]]


def first_position(states: Sequence[NodeState]) -> int:
    """Where to look first: the first rejected token, else the first."""
    refused = (index for index, state in enumerate(states) if state.status == "rejected")
    return next(refused, 0)


def rule(title: str, width: int) -> Line:
    """A heading over the whole width."""
    start = f"── {title} "
    return [Span(clip(start, width), "strong"), Span("─" * (width - width_of([Span(start)])), "dim")]


def _title(row: int, step: Step) -> str:
    parts = [
        f"step {row:,}",
        f"request {visible(step.request, limit=32)} step {step.step:,}",
        f"position {step.position:,}",
        end_text(step),
    ]
    parts += [f"{step.step_ns / 1e6:,.1f} ms"] if step.step_ns is not None else []
    parts += [f"stop: {visible(step.stop, limit=24)}"] if step.stop else []
    return " · ".join(parts)


# --- table of tokens -----------------------------------------------------------------------------


def _table_head(token: int) -> Line:
    cells = (
        left("pos", 6),
        left("raw id", 8),
        left("mapped id, text", token),
        right("log q", 7),
        "  ",
        left("target's pick", token),
        right("log p", 7),
        right("rank", 5),
        right("gap", 6),
    )
    return [Span("".join(cells), "dim")]


def _node_line(step: Step, state: NodeState, names: Names, token: int, *, is_cursor: bool) -> Line:
    role = TOKEN_ROLES[state.status]
    rest: Role = "dim" if state.status == "not_reached" else "plain"
    is_own = state.status in ("bonus", "target")
    depth = f"{state.depth}" if step.parents is None else f"{state.index}@{state.depth}"
    raw = "-" if state.draft_id is None else str(state.draft_id)
    slot = 0 if state.parent < 0 else state.parent + 1
    return [
        Span(">" if is_cursor else " ", "strong"),
        Span(left(depth, 3), "cursor" if is_cursor else rest),
        Span(" "),
        Span(GLYPHS[state.status], role),
        Span(" " + left("" if is_own else raw, 6) + " ", rest),
        Span(left(quoted(state.token_id, names), token - 1) + " ", rest),
        Span(right("" if is_own else number(item(step.draft_logprobs, state.index)), 7) + "  ", rest),
        Span(left(quoted(state.pick_id, names), token - 1) + " ", _pick_role(state)),
        Span(right("" if is_own else number(item(step.target_logprobs, state.index)), 7), rest),
        Span(right("" if is_own else whole(item(step.target_ranks, state.index)), 5), rest),
        Span(right(number(item(step.target_gaps, slot), 2), 6), rest),
        Span("  " + _status_words(state, names), role if state.status != "rejected" else "strong"),
    ]


def _pick_role(state: NodeState) -> Role:
    if state.status == "not_reached":
        return "dim"
    return "wanted" if state.status == "rejected" else "plain"


def _status_words(state: NodeState, names: Names) -> str:
    words = {
        "accepted": "accepted",
        "rejected": "rejected",
        "passed_over": "a sibling was accepted",
        "not_reached": "not reached",
        "bonus": "bonus: the target's own",
        "target": "the target's own",
    }[state.status]
    if state.wanted_id is not None and state.wanted_id != state.pick_id:
        return f"{words}, committed {quoted(state.wanted_id, names)}"
    return words


def _window(table: list[Line], position: int, room: int) -> list[Line]:
    """As many lines of the table as there is room for, the cursor among them."""
    if len(table) <= room:
        return table
    start = min(max(position - room // 2, 0), len(table) - room)
    return table[start : start + room]


# --- below the table -----------------------------------------------------------------------------


def _below(step: Step, states: Sequence[NodeState], names: Names, position: int) -> list[Line]:
    state = item(states, position)
    lines: list[Line] = []
    if state is not None:
        draft = item(step.draft_top, state.index) if state.status not in ("bonus", "target") else None
        target = item(step.target_top, state.parent + 1)
        lines = [
            _top_line(f"draft's top @{state.depth}", draft, names, draft=True),
            _top_line(f"target's top @{state.depth}", target, names, draft=False),
        ]
    return [*lines, _facts_line(step), _taps_line(step), _emitted_line(step, names)]


def _top_line(title: str, top: Top | None, names: Names, *, draft: bool) -> Line:
    if not top:
        return []
    cells = [f"{quoted(token, names, draft=draft)} {number(logprob)}" for token, logprob in top[:12]]
    return [Span(f"{left(title, 17)} ", "dim"), Span("  ".join(cells))]


def _emitted_line(step: Step, names: Names) -> Line:
    ids = step.emitted_ids or ()
    shown = " ".join(quoted(token, names) for token in ids[:16])
    return [Span(left(f"committed {len(ids)}", 17) + " ", "dim"), Span(shown)]


def _facts_line(step: Step) -> Line:
    facts = [
        _fact("draft KV", step.draft_kv_length),
        _fact("target KV", step.target_kv_length),
        _fact("prefix hit", step.prefix_hit_length),
        _time("draft", step.draft_ns),
        _time("verify", step.verify_ns),
        _time("started", step.started_ns),
    ]
    words = [fact for fact in facts if fact]
    for name, count in (step.nonfinite or {}).items():
        words.append(f"non-finite {visible(str(name), limit=24)} {visible(str(count), limit=12)}")
    words += [visible(flag, limit=24) for flag in step.flags or ()]
    return [Span(left("lengths, times", 17) + " ", "dim"), Span("  ".join(words))] if words else []


def _taps_line(step: Step) -> Line:
    if not step.taps:
        return []
    line = [Span(left("hidden states", 17) + " ", "dim")]
    are_many = len({(tap.boundary, tap.index) for tap in step.taps}) < len(step.taps)
    for tap in step.taps[:12]:
        place = f"B({tap.boundary})" if tap.boundary is not None else f"tap {tap.index}"
        place += f" token {tap.position}" if are_many and tap.position is not None else ""
        line.append(Span(f"{place} rms {number(tap.rms)}  "))
        if tap.nonfinite:
            line.append(Span(f"{tap.nonfinite} non-finite!  ", "warning"))
    first = step.taps[0]
    shape = "x".join(str(size) for size in (first.shape or ())[:4])
    line.append(Span(f"[{shape}] {visible(str(first.dtype), limit=16)}", "dim"))
    return line


def _fact(name: str, value: int | None) -> str:
    return "" if value is None else f"{name} {value:,}"


def _time(name: str, nanoseconds: int | None) -> str:
    return "" if nanoseconds is None else f"{name} {nanoseconds / 1e6:,.1f} ms"


def quoted(token_id: int | None, names: Names, *, draft: bool = False) -> str:
    """Id and text of a token, quoted so that blanks are seen."""
    if token_id is None:
        return "-"
    text = names.token(token_id, draft=draft)
    return str(token_id) if text is None else f'{token_id} "{clip(text, 24)}"'
