"""Everything a trace says of one step, as lines: raw id, mapped id, text, target's pick, rank, log-probs.

Lays out what is recorded and what `analysis.rejection` says of it. A value that the trace lacks is
shown as `-`; what was not reached is dimmed.
"""

from __future__ import annotations

from collections.abc import Sequence

from spectrace.analysis.alternatives import rank_words, uncut
from spectrace.analysis.rejection import NodeState, Status, item
from spectrace.format.records import Step, Tap
from spectrace.format.text import visible
from spectrace.tui.cells import cell_number, cell_rank
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
    wrong: Sequence[str] = (),
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
        wrong: what findings say of the step.

    Returns:
        At most `height` lines of at most `width` cells.
    """
    if step is None:
        return damaged_lines(row, width)[:height]
    above = [*wrong_lines(wrong[:2]), table_head(token_cells(width))]
    below = [line for line in _below(step, states, names, position) if line]
    room = max(height - 1 - len(above) - len(below), min(4, len(states)))
    places = _window(len(states), position, room)
    table = [node_line(step, states[index], names, width, is_cursor=index == position) for index in places]
    # What is cut off at the end of a small pane is the least: what was committed stands in the table too.
    body = [*above, *table, *below]
    is_whole = len(places) == len(states) and len(body) < height
    title = rule(title_of(row, step), width, end="" if is_whole else "more: Enter")
    return [clip_line(line, width) for line in [title, *body][: max(height, 1)]]


def wrong_lines(wrong: Sequence[str]) -> list[Line]:
    """What findings say of a step."""
    return [[Span(f"! {words}", "warning")] for words in wrong]


def damaged_lines(row: int, width: int) -> list[Line]:
    """What is said of a step that cannot be read."""
    return [
        rule(f"step {row:,}", width),
        [Span("This part of the file is damaged; the steps around it are whole.", "warning")],
        [Span("spectrace repair TRACE -o OUT writes a trace of what is whole.", "dim")],
    ]


def token_cells(width: int) -> int:
    """Cells of each of the two tokens of a line of the table; the columns beside them take 41."""
    return min(max((width - 41) // 2, 9), 19 if width < 100 else 22)


def first_position(states: Sequence[NodeState]) -> int:
    """Where to look first: the first rejected token, else the first."""
    refused = (index for index, state in enumerate(states) if state.status == "rejected")
    return next(refused, 0)


def rule(title: str, width: int, *, end: str = "") -> Line:
    """A heading over the whole width, with a word at its end."""
    last = f" {end} ──" if end and width > 2 * len(end) + 8 else ""
    start = clip(f"── {title} ", width - len(last))
    dashes = "─" * (width - len(last) - width_of([Span(start)]))
    return [Span(start, "strong"), Span(dashes, "dim"), Span(last, "strong")]


def title_of(row: int, step: Step) -> str:
    """Which step this is, and how it ended."""
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


def table_head(token: int) -> Line:
    """Names of the columns."""
    cells = (
        left("pos", 6),
        left("raw id", 8),
        left("mapped id, text", token),
        right("log q", 7),
        right("log p", 8),
        right("rank", 5),
        " ",
        left("target's pick", token),
        right("gap", 6),
    )
    return [Span("".join(cells), "dim")]


def node_line(step: Step, state: NodeState, names: Names, width: int, *, is_cursor: bool) -> Line:
    """One token of the proposal, or the target's own; in a narrow place its mark stands for the words."""
    token = token_cells(width)
    role = TOKEN_ROLES[state.status]
    rest: Role = "dim" if state.status == "not_reached" else "plain"
    is_own = state.status in ("bonus", "target")
    depth = f"{state.depth}" if step.parents is None else f"{state.index}@{state.depth}"
    depth = depth if len(depth) <= 3 else f"{state.index}"
    raw = "-" if state.draft_id is None else str(state.draft_id)
    slot = 0 if state.parent < 0 else state.parent + 1
    return [
        Span(">" if is_cursor else " ", "strong"),
        Span(left(depth, 3), "cursor" if is_cursor else rest),
        Span(" "),
        Span(GLYPHS[state.status], role),
        Span(" " + left("" if is_own else raw, 6) + " ", rest),
        Span(left(quoted(state.token_id, names), token - 1) + " ", rest),
        # What both models say of this token, then what the target would rather have.
        Span(right("" if is_own else cell_number(item(step.draft_logprobs, state.index)), 7), rest),
        Span(right("" if is_own else cell_number(item(step.target_logprobs, state.index)), 8), rest),
        Span(right("" if is_own else cell_rank(rank_words(step, state.index)), 5) + " ", rest),
        Span(left(quoted(state.pick_id, names), token - 1) + " ", _pick_role(state)),
        Span(right(cell_number(item(step.target_gaps, slot), 2), 6), rest),
        Span(_status_words(state, names, width), role if state.status != "rejected" else "strong"),
    ]


def _pick_role(state: NodeState) -> Role:
    if state.status == "not_reached":
        return "dim"
    return "wanted" if state.status == "rejected" else "plain"


_STATUS_WORDS: dict[Status, tuple[str, str]] = {
    "accepted": ("accepted", "accepted"),
    "rejected": ("rejected", "rejected"),
    "passed_over": ("a sibling was accepted", "passed over"),
    "not_reached": ("not reached", "not reached"),
    "bonus": ("bonus: the target's own", "bonus"),
    "target": ("the target's own", "target's own"),
}
"""What became of a token, and the same in few cells."""


def _status_words(state: NodeState, names: Names, width: int) -> str:
    """What became of a token, in as many words as there is room for; none in a narrow place."""
    long, short = _STATUS_WORDS[state.status]
    told = [long, short]
    if state.wanted_id is not None and state.wanted_id != state.pick_id:
        told = [f"{words}, committed {quoted(state.wanted_id, names)}" for words in told] + told
    room = width - 41 - 2 * token_cells(width)
    return next((f"  {words}" for words in told if width_of([Span(f"  {words}")]) <= room), "")


def _window(length: int, position: int, room: int) -> range:
    """As many lines of the table as there is room for, the cursor among them."""
    start = max(0, min(position - room // 2, length - room))
    return range(start, min(start + room, length))


# --- below the table -----------------------------------------------------------------------------


def _below(step: Step, states: Sequence[NodeState], names: Names, position: int) -> list[Line]:
    state = item(states, position)
    lines: list[Line] = []
    if state is not None:
        draft = item(step.draft_top, state.index) if state.status not in ("bonus", "target") else None
        target = item(step.target_top, state.parent + 1)
        lines = [
            _words_line(f"draft's top @{state.depth} (raw ids)", top_words(draft, names, draft=True)),
            _words_line(f"target's top @{state.depth}", top_words(target, names)),
        ]
    return [
        *lines,
        _words_line("lengths, times", facts_words(step)),
        _taps_line(step),
        _words_line(f"committed {len(step.emitted_ids or ())}", emitted_words(step, names)),
    ]


def _words_line(title: str, words: Sequence[str]) -> Line:
    return [Span(left(title, max(17, len(title) + 1)) + " ", "dim"), Span("  ".join(words))] if words else []


def top_words(top: Top | None, names: Names, *, draft: bool = False) -> list[str]:
    """The alternatives at one place, best first, with their log-probabilities."""
    left = uncut(top)[:12]
    words = [f"{quoted(token, names, draft=draft)} {cell_number(logprob)}" for token, logprob in left]
    return [*words, *(["others cut"] if len(left) < len((top or ())[:12]) else [])]


def emitted_words(step: Step, names: Names) -> list[str]:
    """What the step committed."""
    return [quoted(token, names) for token in (step.emitted_ids or ())[:16]]


def facts_words(step: Step) -> list[str]:
    """Cache lengths, times, values that are no numbers, flags."""
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
    return words + [visible(flag, limit=24) for flag in step.flags or () if flag]


def tap_words(step: Step) -> list[tuple[str, str]]:
    """Each tapped state: what it is, and a warning where it holds values that are no numbers."""
    taps = step.taps or ()
    are_many = len({(tap.boundary, tap.index) for tap in taps}) < len(taps)
    words = []
    for tap in taps[:12]:
        place = f"B({tap.boundary})" if tap.boundary is not None else f"tap {tap.index}"
        place += f" token {tap.position}" if are_many and tap.position is not None else ""
        warning = f"{tap.nonfinite} non-finite!" if tap.nonfinite else ""
        words.append((f"{place} rms {cell_number(tap.rms)}", warning))
    return words


def tap_form(step: Step) -> str:
    """Shape and type of the first tapped state."""
    first = (step.taps or (Tap({}),))[0]
    shape = "x".join(str(size) for size in (first.shape or ())[:4])
    return f"[{shape}] {visible(str(first.dtype), limit=16)}" if step.taps else ""


def _taps_line(step: Step) -> Line:
    if not step.taps:
        return []
    line = [Span(left("hidden states", 17) + " ", "dim")]
    for words, warning in tap_words(step):
        line.append(Span(f"{words}  "))
        line.append(Span(f"{warning}  " if warning else "", "warning"))
    return [*line, Span(tap_form(step), "dim")]


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
