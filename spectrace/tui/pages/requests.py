"""Every request as a row, the worst first: Enter goes to its first step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spectrace.analysis.acceptance import accept_length, acceptance_rate, alpha1
from spectrace.analysis.breakdown import Group, break_down
from spectrace.analysis.requests import is_below, worst_first
from spectrace.format.counts import Counts
from spectrace.format.figures import count_of, number, percent
from spectrace.format.text import visible
from spectrace.tui.loader import Loader
from spectrace.tui.pages.outcomes import FIRST_STEPS, bound_lines
from spectrace.tui.pages.page import PageLine
from spectrace.tui.pages.paragraphs import fitted, heading, line, paragraph, sized, table_row
from spectrace.tui.spans import Span

MOST_ROWS = 2000
"""Requests that are listed; the rest is counted."""
_HEADS = ("", "request", "first step", "steps", "tokens", "accept length", "accepted", "alpha1")
_NARROW = ("", "request", "first", "steps", "tokens", "length", "accepted", "alpha1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsFacts:
    """What the page shows."""

    total: int
    counts: Counts
    """Of the whole run."""
    rows: Sequence[Group]
    """The worst first, at most `MOST_ROWS`."""
    below: Sequence[bool]
    """Per row, whether its alpha1 is below that of the run by more than chance."""
    num_requests: int


def gather(loader: Loader, row: int) -> RequestsFacts:
    """Reads ids of the first steps."""
    with loader.opened_again() as trace:
        found = list(break_down(trace, "request", loader.keep_going, first_steps=FIRST_STEPS))
        counts, total = trace.counts, len(trace)
    rows = worst_first(found)[:MOST_ROWS]
    return RequestsFacts(
        total=total,
        counts=counts,
        rows=rows,
        below=[is_below(one.counts, counts) for one in rows],
        num_requests=len(found),
    )


def lines(facts: RequestsFacts, width: int) -> list[PageLine]:
    """The page."""
    return fitted(_lines(facts, width), width)


def _lines(facts: RequestsFacts, width: int) -> Iterator[PageLine]:
    yield from heading("requests, lowest accept length first", width, is_first=True)
    if not facts.rows:
        yield from paragraph("No step names a request.", width)
        return
    heads = list(_HEADS if width >= 96 else _NARROW)
    table = [
        _cells(row, is_low=low, is_worst=at == 0 and _is_alone_at_the_end(facts.rows))
        for at, (row, low) in enumerate(zip(facts.rows, facts.below))
    ]
    whole = _whole(facts)
    sizes = _sizes([heads, whole, *table], width)
    yield line(Span(table_row(heads, sizes, num_left=2), "dim"))
    yield line(Span(table_row(whole, sizes, num_left=2), "strong"))
    for row, low, cells in zip(facts.rows, facts.below, table):
        text = table_row(cells, sizes, num_left=2)
        yield line(Span(text, "warning" if low else "plain"), row=row.first_row)
    if facts.num_requests > len(facts.rows):
        words = f"Listed are the worst {len(facts.rows):,} of {count_of(facts.num_requests, 'request')}."
        yield from paragraph(words, width)
    yield from bound_lines(facts.total, width, "spectrace stats --by request")
    words = "accept length counts the target's own token; ! alpha1 is below the run's by more than chance"
    if _is_alone_at_the_end(facts.rows) and not facts.below[0]:
        words += "; * the lowest accept length, perhaps by chance"
    yield from paragraph(words, width, role="dim")


def _is_alone_at_the_end(rows: Sequence[Group]) -> bool:
    """One request has a lower accept length than every other."""
    lengths = [accept_length(row.counts) for row in rows[:2]]
    return len(lengths) == 2 and None not in lengths and lengths[0] != lengths[1]


def _cells(row: Group, *, is_low: bool, is_worst: bool) -> list[str]:
    mark = "!" if is_low else "*" if is_worst else ""
    return [mark, visible(row.name, limit=32), f"{row.first_row:,}", *_figures(row.counts)]


def _whole(facts: RequestsFacts) -> list[str]:
    return ["", "whole run", "", *_figures(facts.counts)]


def _figures(counts: Counts) -> list[str]:
    return [
        f"{counts.steps:,}",
        f"{counts.emitted:,}",
        number(accept_length(counts), 2),
        percent(acceptance_rate(counts)),
        number(alpha1(counts), 3),
    ]


def _sizes(table: Sequence[Sequence[str]], width: int) -> list[int]:
    """Columns that fit: the first step, tokens and acceptance give way before the name is cut."""
    sizes = sized(table, [1, 32, 12, 12, 12, 14, 12, 8])
    for at in (6, 4, 2):
        if sum(size + 1 for size in sizes if size) - 1 > width:
            sizes[at] = 0
    rest = sum(size + 1 for at, size in enumerate(sizes) if size and at != 1)
    sizes[1] = min(sizes[1], max(width - rest, 6))
    return sizes
