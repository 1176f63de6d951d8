"""Another trace of the same prompts beside this one: what differs, where first, and the steps side by side.

Both are read once; the steps under the cursor are read whenever it moves. A is the trace of the viewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spectrace.analysis.comparison import Comparison, compare
from spectrace.analysis.comparison.acceptance_change import Measure
from spectrace.analysis.comparison.difference import INPUTS, KIND_WORDS, Difference, Kind
from spectrace.analysis.comparison.headers import shown_value
from spectrace.analysis.comparison.inputs import differing_words, input_place, input_values
from spectrace.analysis.comparison.row_pairs import DECISION, EMITTED, INPUT, PROPOSAL, TARGET_PICK
from spectrace.analysis.comparison.tap_match import TapMatch
from spectrace.analysis.comparison.tap_words import tap_words
from spectrace.analysis.rejection import node_states
from spectrace.errors import TraceError
from spectrace.format.figures import count_of, number
from spectrace.format.reader import Trace
from spectrace.format.reader import open as open_trace
from spectrace.format.records import Step, held
from spectrace.format.text import visible
from spectrace.tui.loader import Loader
from spectrace.tui.pages.page import PageLine
from spectrace.tui.pages.paragraphs import fitted, heading, labelled, line, paragraph, table_row
from spectrace.tui.pages.token_texts import TokenTexts, step_texts, texts_of
from spectrace.tui.spans import Role, Span
from spectrace.tui.step_detail import quoted
from spectrace.tui.step_row import Columns, columns_for, step_line

_BITS = {
    PROPOSAL: "proposal",
    TARGET_PICK: "target pick",
    DECISION: "decision",
    EMITTED: "text",
}
NO_OTHER = (
    "No other trace was given: :diff FILE takes one, as spectrace view A --against FILE does; "
    "spectrace diff A FILE prints it."
)
_MOST_HEADERS = 24
_MOST_REQUESTS = 24
_MOST_POSITIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One trace, and the step of it that is shown."""

    label: str
    """A | B."""
    name: str
    total: int
    row: int | None
    step: Step | None
    names: TokenTexts
    """Texts of the tokens of this step and of the differences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffFacts:
    """What the page shows."""

    sides: tuple[Side, Side] | None
    comparison: Comparison | None
    problem: str | None
    """Why there is nothing to compare."""


def gather(loader: Loader, row: int) -> DiffFacts:
    """Reads both traces, once for each length of theirs, then a step of each."""
    if not loader.against:
        return DiffFacts(sides=None, comparison=None, problem=NO_OTHER)
    try:
        with open_trace(loader.against) as b, loader.opened_again() as a:
            found = loader.once(
                "diff", (loader.against, len(a), len(b)), lambda: compare(a, b, on_progress=loader.keep_going)
            )
            other = found.rows.row_of_b(row)
            own = row if row < len(a) else None
            sides = (_side("A", a, own, found), _side("B", b, other, found))
            return DiffFacts(sides=sides, comparison=found, problem=found.alignment.problem)
    except TraceError as error:
        return DiffFacts(sides=None, comparison=None, problem=str(error))


def _side(label: str, trace: Trace, row: int | None, found: Comparison) -> Side:
    step = None if row is None else trace.steps.get(row)
    side = "AB".index(label)
    kinds = found.first_differences.kinds.values()
    firsts = [kind.first for kind in kinds if kind.first is not None]
    told = [
        at for at in [*firsts, *found.first_differences.by_request] if at.kind not in ("decision", *INPUTS)
    ]
    loader = Loader(trace)
    ids = [at.values[side] for at in told]
    more = texts_of(loader, [None if value is None else int(value) for value in ids])
    own = step_texts(loader, step)
    return Side(
        label=label,
        name=trace.paths[0].name,
        total=len(trace),
        row=row,
        step=None if step is None else held(step),
        names=TokenTexts({**more.target, **own.target}, own.draft),
    )


def lines(facts: DiffFacts, width: int) -> list[PageLine]:
    """The page."""
    return fitted(_lines(facts, width), width)


def _lines(facts: DiffFacts, width: int) -> Iterator[PageLine]:
    yield from heading("A, this trace, beside B", width, is_first=True)
    found = facts.comparison
    if found is None or facts.sides is None:
        yield from paragraph(visible(facts.problem or "", limit=400), width, role="warning")
        return
    for side in facts.sides:
        yield from labelled(
            side.label, f"{visible(side.name, limit=60)}, {count_of(side.total, 'step')}", width
        )
    for sentence in found.next:
        yield from labelled("next", visible(sentence, limit=400), width, role="strong")
    if facts.problem is None:
        yield from _at_cursor(facts.sides, found, width)
        yield from _first(facts.sides, found, width)
        yield from _taps(found.taps, width)
        yield from _acceptance(found, width)
    else:
        yield from paragraph(visible(facts.problem, limit=400), width, role="warning")
    yield from _headers(found, width)


# --- steps ---------------------------------------------------------------------------------------


def _at_cursor(sides: tuple[Side, Side], found: Comparison, width: int) -> Iterator[PageLine]:
    yield from heading("the step under the cursor", width)
    columns = columns_for(max(width - 2, 1), max(side.total for side in sides), 8)
    for side in sides:
        yield from _step(side, columns, width)
    row = sides[0].row
    if row is None or row >= len(found.rows.differs):
        return
    bits = int(found.rows.differs[row])
    differing = [word for bit, word in _BITS.items() if bits & bit]
    if bits & INPUT:
        a, b = (side.step for side in sides)
        differing = [*(() if a is None or b is None else differing_words(a, b)), *differing]
    words = ", ".join(differing)
    yield from labelled(
        "differs", words or "nothing that was compared", width, role="strong" if words else "plain"
    )
    following = found.rows.next_difference(row)
    if following is not None:
        yield from labelled("next difference", f"step {following:,}; Enter goes there", width, row=following)


def _step(side: Side, columns: Columns, width: int) -> Iterator[PageLine]:
    row = side.row if side.label == "A" else None
    if side.row is None:
        yield line(Span(f"{side.label} ", "strong"), Span("no step stands here", "dim"))
        return
    states = () if side.step is None else node_states(side.step)
    spans = step_line(side.row, side.step, states, side.names, columns)
    yield line(Span(f"{side.label} ", "strong"), *spans, row=row)


def _first(sides: tuple[Side, Side], found: Comparison, width: int) -> Iterator[PageLine]:
    yield from heading("first differences", width)
    sizes = [12, 9, 7, 9, 9] if width >= 56 else [11, 0, 6, 9, 0]
    yield line(Span(table_row(["", "compared", "differ", "step of A", "of B"], sizes), "dim"))
    for name, kind in found.first_differences.kinds.items():
        if (name in INPUTS or found.without_ids) and not kind.compared:
            continue
        yield from _kind(name, kind, sides, sizes, width)
    if found.without_ids:
        words = (
            f"no token ids in {found.without_ids} (packed, or counts only): neither tokens nor states are "
            "compared."
        )
        yield from paragraph(words, width, role="warning")
    others = [at for at in found.first_differences.by_request if at.steps is not None]
    if len(others) > 1:
        yield from heading("first difference of each request", width)
        for at in others[:_MOST_REQUESTS]:
            request = visible(at.request[0], limit=24)
            words = f"{KIND_WORDS.get(at.kind, at.kind)} at token {at.token}: {_values(at, sides)}"
            yield from labelled(request, words, width, row=_row(at))


def _kind(
    name: str, kind: Kind, sides: tuple[Side, Side], sizes: Sequence[int], width: int
) -> Iterator[PageLine]:
    first = kind.first
    steps = ("", "") if first is None or first.steps is None else tuple(f"{step:,}" for step in first.steps)
    row = None if first is None else _row(first)
    text = table_row([KIND_WORDS.get(name, name), f"{kind.compared:,}", f"{kind.differing:,}", *steps], sizes)
    yield line(Span(text, "strong" if kind.differing else "plain"), row=row)
    if first is not None:
        where = f"{visible(first.request[0], limit=24)}: {_values(first, sides)}"
        yield from paragraph(where, width, indent=min(12, width // 4), row=row)


def _row(at: Difference) -> int | None:
    return None if at.steps is None else at.steps[0]


def _values(at: Difference, sides: tuple[Side, Side]) -> str:
    if at.kind == "decision":
        return f"accepted of what both propose: A {at.values[0]} | B {at.values[1]}"
    if at.kind in INPUTS:
        return f"{input_place(at)}: " + " | ".join(f"{s.label} {v}" for s, v in zip(sides, input_values(at)))
    shown = []
    for side, value, raw in zip(sides, at.values, at.raw):
        via = "" if raw is None or raw == value else f"raw {raw}→"
        shown.append(f"{side.label} {via}{'nothing' if value is None else quoted(int(value), side.names)}")
    return " | ".join(shown)


# --- taps, acceptance, headers -------------------------------------------------------------------


def _taps(taps: Sequence[TapMatch], width: int) -> Iterator[PageLine]:
    if not taps:
        return
    yield from heading("tapped states at the same tokens", width)
    role: Role = "plain" if all(match.is_same for match in taps) else "warning"
    for words in tap_words(taps):
        yield from paragraph(words, width, role=role)


def _acceptance(found: Comparison, width: int) -> Iterator[PageLine]:
    yield from heading("acceptance", width)
    sizes = [16, 8, 8, 8, 17, 8] if width >= 70 else [16, 7, 7, 7, 0, 0]
    yield line(Span(table_row(["", "A", "B", "B - A", "95 % interval", ""], sizes), "dim"))
    acceptance = found.acceptance
    for measure in [*acceptance.overall, *acceptance.positions[1 : 1 + _MOST_POSITIONS]]:
        yield line(Span(table_row(_cells(measure), sizes), "strong" if _is_shown(measure) else "plain"))
    a, b = acceptance.proposals
    if not acceptance.is_shown:
        yield from paragraph(f"No difference that {a:,} and {b:,} proposals could show.", width)
    if left_out := acceptance.left_out:
        yield from paragraph(left_out, width, role="warning")


def _is_shown(measure: Measure) -> bool:
    return measure.change is not None and measure.change.is_shown


def _cells(measure: Measure) -> list[str]:
    name = measure.name.replace("_", " ")
    cells = [name, *(number(value, 3) for value in measure.values)]
    if measure.change is None:
        return [*cells, "", "", ""]
    change = measure.change
    word = "differs" if change.is_shown else ""
    return [*cells, f"{change.value:+.3f}", f"{change.low:+.3f} to {change.high:+.3f}", word]


def _headers(found: Comparison, width: int) -> Iterator[PageLine]:
    yield from heading("headers", width)
    if not found.headers:
        yield from paragraph("No difference that bears on the run.", width)
    for item in found.headers[:_MOST_HEADERS]:
        text = f"A {shown_value(item.a)} | B {shown_value(item.b)}"
        yield from paragraph(text, width, first=Span(f"{visible(item.words, limit=60)}: ", "dim"), hang=4)
    rest = len(found.headers) - _MOST_HEADERS
    if rest > 0:
        yield from paragraph(f"and {rest:,} more: spectrace diff --json lists them", width, role="dim")
