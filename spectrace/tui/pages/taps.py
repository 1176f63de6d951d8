"""The hidden states that the draft is fed: which boundary each tap is, in which form, and how steady.

Directions are those of fingerprints against a reference forward; where the trace has none, lengths alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spectrace.analysis.diagnosis import Cleared, Finding, tap_layer
from spectrace.analysis.diagnosis.facts import collect
from spectrace.analysis.diagnosis.fingerprints import TapTally
from spectrace.analysis.diagnosis.reference import declared_boundaries
from spectrace.analysis.diagnosis.verdict import Outcome
from spectrace.analysis.diagnosis.words import rule_of
from spectrace.analysis.fed_back import FedBackTally, Lengths
from spectrace.analysis.tap_table import CourseTally, TapRow, heat, largest_jump, tap_rows
from spectrace.format.figures import count_of, number
from spectrace.format.records import Run
from spectrace.format.text import visible
from spectrace.tui.cells import cell_number
from spectrace.tui.loader import Loader
from spectrace.tui.pages.missing import missing_words
from spectrace.tui.pages.outcomes import (
    FIRST_STEPS,
    bound_lines,
    cleared_line,
    diagnosis_of,
    outcome_lines,
)
from spectrace.tui.pages.page import PageLine
from spectrace.tui.pages.paragraphs import fitted, heading, labelled, line, paragraph, table_row
from spectrace.tui.spans import Role, Span, left
from spectrace.tui.summary import bars

_SAME = tap_layer.SAME
_RULES = ("tap-layer", "tap-form")
"""Rules about states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TapsFacts:
    """What the page shows."""

    run: Run
    total: int
    is_fed_tokens_only: bool
    by_index: bool
    has_reference: bool
    outcomes: Sequence[Outcome]
    """Every answer about states, of the same diagnosis as the overview's."""
    rows: Sequence[TapRow]
    forms: Sequence[str]
    """Shape and type of each tap where it is first seen, escaped."""
    wanted: Sequence[int]
    """Boundaries that the draft was made for."""
    depths: Mapping[int, Lengths]
    """Depth from 0 -> length of the states that the draft reads there."""


def gather(loader: Loader, row: int) -> TapsFacts:
    """Reads fingerprints of the first requests, and lengths of the first steps."""
    with loader.opened_again() as trace:
        facts = collect(trace, [TapTally, CourseTally, FedBackTally], loader.keep_going, FIRST_STEPS)
        total = len(trace)
        found = diagnosis_of(loader, trace)
    answers: list[Outcome] = [*found.findings, *found.cleared, *found.not_checked]
    rows = tap_rows(facts)
    by_index = facts.of(TapTally).by_index
    return TapsFacts(
        run=facts.run,
        total=total,
        is_fed_tokens_only=facts.shares_vocabulary,
        by_index=by_index,
        has_reference=bool(facts.references),
        outcomes=[outcome for outcome in answers if rule_of(outcome.id) in _RULES],
        rows=rows,
        forms=[_form(loader, one) for one in rows],
        wanted=declared_boundaries(facts.run) or (),
        depths=facts.of(FedBackTally).depths,
    )


def _form(loader: Loader, row: TapRow) -> str:
    step = loader.step(row.first_step)
    taps = () if step is None else step.taps or ()
    tap = next((tap for tap in taps if row.tap in (tap.boundary, tap.index)), None)
    if tap is None:
        return ""
    shape = "x".join(str(size) for size in (tap.shape or ())[:4])
    return f"[{shape}] {visible(str(tap.dtype), limit=16)}"


def lines(facts: TapsFacts, width: int) -> list[PageLine]:
    """The page."""
    return fitted(_lines(facts, width), width)


def _lines(facts: TapsFacts, width: int) -> Iterator[PageLine]:
    yield from heading("verdict", width, is_first=True)
    yield from outcome_lines([one for one in facts.outcomes if not isinstance(one, Cleared)], width, "taps")
    yield from _cleared(facts.outcomes, width)
    yield from bound_lines(facts.total, width, "spectrace diagnose")
    yield from heading("header", width)
    yield from _header(facts, width)
    yield from heading("taps", width)
    if not facts.rows:
        yield from paragraph(f"{missing_words(facts.run, 'taps')}.", width)
    else:
        yield from _table(facts, width)
    if facts.depths:
        yield from heading("length of the state the draft reads at each depth", width)
        yield from _depths(facts.depths, width)
    if not facts.rows:
        return
    yield from heading("length over the run", width)
    yield from _course(facts, width)


def _cleared(outcomes: Sequence[Outcome], width: int) -> Iterator[PageLine]:
    """What was cleared, under its own name: that of a rule would clear what another finding of it says."""
    accused = {_name(outcome.id) for outcome in outcomes if isinstance(outcome, Finding)}
    for outcome in outcomes:
        if isinstance(outcome, Cleared) and _name(outcome.id) not in accused:
            yield from cleared_line(_name(outcome.id), outcome, width)


def _name(id_: str) -> str:
    """Last part of an id; of a rule that has none, what it is about: layer, form."""
    return id_.partition("/")[2] or id_.removeprefix("tap-")


def _header(facts: TapsFacts, width: int) -> Iterator[PageLine]:
    given = facts.run.taps
    if given is None:
        words = "The header says nothing of taps."
        words += " The draft is fed tokens only." if facts.is_fed_tokens_only else ""
        yield from paragraph(words, width, role="dim")
        return
    means = {"input": "input of layer L: B(L)", "output": "output of layer L: B(L+1)"}
    yield from labelled("declared ids", _ids(given.declared), width)
    yield from labelled(
        "they mean", means.get(given.numbering or "", visible(given.numbering or "", limit=24)), width
    )
    yield from labelled("so boundaries", _ids(facts.wanted), width)
    yield from labelled("captured", _ids(given.boundaries), width)
    yield from labelled("order", _ids(given.order), width)
    yield from labelled("said by", visible(given.origin or "", limit=24), width)
    norm = {True: "after the final norm", False: "before the final norm", None: ""}[given.normed]
    yield from labelled("captured where", norm, width)


def _ids(values: Sequence[int] | None) -> str:
    shown = " ".join(str(value) for value in (values or ())[:24])
    return f"{shown} …" if len(values or ()) > 24 else shown


# --- table ---------------------------------------------------------------------------------------

_HEADS = ("tap", "meant", "nearest", "cos there", "cos meant", "rms", "ref rms", "ratio")
_WIDTHS = (7, 6, 8, 10, 10, 9, 9, 6)


def _table(facts: TapsFacts, width: int) -> Iterator[PageLine]:
    sizes = _sizes(width)
    yield line(Span(table_row(_HEADS, sizes), "dim"))
    for row in facts.rows:
        cells = [
            f"tap {row.tap}" if facts.by_index else f"B({row.tap})",
            _boundary(row.declared),
            _boundary(row.best),
            cell_number(row.best_cosine),
            cell_number(row.declared_cosine),
            cell_number(row.rms),
            cell_number(row.reference_rms),
            number(row.ratio, 2),
        ]
        yield line(Span(table_row(cells, sizes), _role(row)), row=row.first_step)
        for words in _remarks(row):
            yield line(Span(f"  ^ {words}", "warning"), row=row.first_step)
    forms = dict.fromkeys(form for form in facts.forms if form)
    yield from labelled("shape, type", ", ".join(list(forms)[:8]), width)
    compared = max((row.num_compared for row in facts.rows), default=0)
    if compared:
        words = (
            f"Cosines over {compared:,} rows of 32 projections each; the same state gives {_SAME} and more."
        )
        yield from paragraph(words, width, role="dim")
    elif not facts.has_reference:
        words = f"No boundary can be matched: {missing_words(facts.run, 'reference')}."
        yield from paragraph(words, width, role="dim")


def _remarks(row: TapRow) -> Iterator[str]:
    if row.is_elsewhere:
        yield f"looks like B({row.best}), the draft expects B({row.declared})"
    elif row.is_scaled:
        yield f"its length is {number(row.ratio, 2)} times the reference's"
    if row.nonfinite:
        yield f"{count_of(row.nonfinite, 'row')} with NaN or infinite values"


def _sizes(width: int) -> list[int]:
    """Columns that fit: what can be worked out from others goes first."""
    sizes = list(_WIDTHS)
    for at in (4, 6, 5, 1):
        if sum(size + 1 for size in sizes if size) - 1 > width:
            sizes[at] = 0
    return sizes


def _boundary(value: int | None) -> str:
    return "-" if value is None else f"B({value})"


def _role(row: TapRow) -> Role:
    is_far = row.best_cosine is not None and row.best_cosine < _SAME
    return "warning" if is_far or row.is_elsewhere or row.is_scaled or row.nonfinite else "plain"


# --- fed back ------------------------------------------------------------------------------------


def _depths(depths: Mapping[int, Lengths], width: int) -> Iterator[PageLine]:
    sizes = (6, 9, 9, 9, 9)
    yield line(Span(table_row(("depth", "steps", "mean rms", "lowest", "highest"), sizes), "dim"))
    for depth, one in depths.items():
        values = (one.mean, one.lowest, one.highest)
        cells = [f"{depth + 1}", f"{one.n:,}", *(cell_number(value) for value in values)]
        yield line(Span(table_row(cells, sizes)), row=one.first_step)
    words = "Depth 1 reads the target's states, each further one the state that the draft fed back to itself."
    words += " A norm leaves every state nearly the same length."
    yield from paragraph(words, width, role="dim")


# --- course --------------------------------------------------------------------------------------


def _course(facts: TapsFacts, width: int) -> Iterator[PageLine]:
    label = 8 if width >= 40 else 0
    for row in facts.rows:
        name = f"tap {row.tap}" if facts.by_index else f"B({row.tap})"
        jump = largest_jump(row)
        if jump is None:
            yield line(Span(left(name, label), "dim"), Span("no rms is recorded"))
            continue
        at = jump.first_row
        strip = bars(heat(row, width - label))
        yield line(Span(left(name, label), "dim"), Span(strip), row=at)
        where = f"step {at:,}" if row.stretch == 1 else f"steps {at:,} to {jump.last_row:,}"
        words = (
            f"usual rms {cell_number(row.usual)}; farthest from it at {where}: {number(jump.ratio, 2)} times"
        )
        yield from paragraph(words, width, indent=label, role="dim", row=at)
    words = "▄ is the usual length, █ four times and more, ▁ a third and less; a blank has no state."
    yield from paragraph(words, width, role="dim")
    yield from paragraph(
        "A text's first token is left out: its state is far longer in most models.", width, role="dim"
    )
