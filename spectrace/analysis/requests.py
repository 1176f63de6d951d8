"""Acceptance per request: the one metric question that the index cannot answer.

Reads the columns of every frame once, in bounded memory; opens nothing and decodes no step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spectrace.analysis.acceptance import accept_length, alpha1
from spectrace.analysis.intervals import Share
from spectrace.format.columns import Array, Columns
from spectrace.format.counts import Counts, rejected_rows
from spectrace.format.fields import FIELD_BY_NAME

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

_FIELDS = ("request", "proposal_ids", "parents", "num_accepted", "accepted_nodes", "emitted_ids")
_NUMBERS = tuple(FIELD_BY_NAME[name].leaves[0].number for name in _FIELDS)


def per_request(trace: Trace, on_progress: Callable[[int], None] | None = None) -> dict[str, Counts]:
    """Counts of each request that has a step.

    Args:
        trace: an open trace.
        on_progress: told how many steps have been read so far.

    Returns:
        Request name -> counts, in the order of the requests' first steps. Filled are the sums, which add
        up to those of ``trace.counts``, and the first position, for alpha1; no histogram and no times.
    """
    found: dict[str, Counts] = {}
    read = 0
    for part in trace.parts:
        for chunk in part.chunks():
            columns = chunk.columns(*_NUMBERS)
            for number, _, counts in _split(columns, chunk.num_rows):
                found.setdefault(part.request_name(number), Counts()).add(counts)
            read += chunk.num_rows
            if on_progress is not None:
                on_progress(read)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One request of a table."""

    name: str
    first_row: int
    """Number of its first step within the trace."""
    counts: Counts

    @property
    def first_accepted(self) -> Share:
        """alpha1 with its interval."""
        return Share(sum(self.counts.accepted_at[:1]), self.counts.proposals)


def request_rows(
    trace: Trace, on_progress: Callable[[int], None] | None = None, first_steps: int | None = None
) -> list[RequestRow]:
    """A row for each request, in the order of their first steps.

    Args:
        trace: an open trace.
        on_progress: told how many steps have been read.
        first_steps: read about so many steps; None for all.
    """
    found: dict[str, RequestRow] = {}
    read = base = 0
    for part in trace.parts:
        for chunk in part.chunks():
            if first_steps is not None and read >= first_steps:
                return list(found.values())
            for number, first, counts in _split(chunk.columns(*_NUMBERS), chunk.num_rows):
                name = part.request_name(number)
                if name in found:
                    found[name].counts.add(counts)
                else:
                    row = base + chunk.first_row + first
                    found[name] = RequestRow(name=name, first_row=row, counts=counts)
            read += chunk.num_rows
            if on_progress is not None:
                on_progress(read)
        base += part.num_rows
    return list(found.values())


def worst_first(rows: Sequence[RequestRow]) -> list[RequestRow]:
    """Lowest accept length first; those without a proposal last."""
    return sorted(rows, key=lambda row: (accept_length(row.counts) is None, accept_length(row.counts) or 0))


def is_below(row: RequestRow, whole: Counts) -> bool:
    """Whether a request's alpha1 lies below that of the run by more than chance.

    >>> run = Counts(proposals=1000, accepted_at=[800])
    >>> few = RequestRow(name="a", first_row=0, counts=Counts(proposals=2, accepted_at=[1]))
    >>> many = RequestRow(name="b", first_row=0, counts=Counts(proposals=60, accepted_at=[20]))
    >>> is_below(few, run), is_below(many, run)
    (False, True)
    """
    usual = alpha1(whole)
    return usual is not None and row.first_accepted.trials > 0 and row.first_accepted.high < usual


def _split(columns: Columns, num_rows: int) -> Iterator[tuple[int | None, int, Counts]]:
    """Number, first row and counts of each request of one frame; None for rows whose request is damaged."""
    requests = per_row(columns, "request", -1, num_rows)
    numbers, first, which = np.unique(requests, return_index=True, return_inverse=True)
    drafted = per_row(columns, "proposal_ids", 0, num_rows)
    emitted = per_row(columns, "emitted_ids", 0, num_rows)
    accepted = np.clip(per_row(columns, "num_accepted", 0, num_rows), 0, drafted)
    proposed = drafted > 0
    sums = {
        "steps": np.ones(num_rows, np.int64),
        "proposals": proposed,
        "drafted": drafted,
        "accepted": accepted,
        "emitted": emitted,
        "emitted_by_proposals": emitted * proposed,
        "rejected": rejected_rows(columns, num_rows),
        "accepted_at": accepted > 0,
    }
    totals = {name: _sums(which, values, len(numbers)) for name, values in sums.items()}
    for at in np.argsort(first):
        own = {name: int(values[at]) for name, values in totals.items()}
        proposals, accepted_first = own["proposals"], own.pop("accepted_at")
        number = int(numbers[at])
        yield (
            None if number < 0 else number,
            int(first[at]),
            Counts(**own, proposed_at=[proposals], accepted_at=[accepted_first]),  # type: ignore[arg-type]
        )


def _sums(which: Array, values: Array, groups: int) -> Array:
    total = np.zeros(groups, np.int64)
    np.add.at(total, which, values)
    return total


def per_row(columns: Columns, name: str, missing: int, num_rows: int) -> Array:
    """[rows] the field's value, or its length when it is a list."""
    rows = np.full(num_rows, missing, np.int64)
    column = columns.get(name)
    if column is not None:
        there = slice(None) if column.present is None else column.present
        rows[there] = column.lengths[0] if column.leaf.depth else column.values
    return rows
