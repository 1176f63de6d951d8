"""`spectrace stats --by`: the same numbers group by group, as a table or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from spectrace.analysis.acceptance import METRICS, per_position
from spectrace.analysis.breakdown import NOT_RECORDED, break_down
from spectrace.analysis.formulas import FORMULAS, RequestSums, Sums
from spectrace.cli.output import progress, table
from spectrace.cli.verdicts import wrapped
from spectrace.format.counts import Counts
from spectrace.format.figures import number
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace import Trace

_SUMS = ("steps", "proposals", "drafted", "accepted", "emitted")
_COLUMNS = ("proposals", "drafted", "accepted", "accept_length", "acceptance_rate", "alpha1")

_WIDTH, _SHORTEST = 80, 8
_MAX_NAME = 400
"""Characters of a name where no terminal cuts it."""
_NOT_RECORDED = {
    "segment": "No step says its segment. Whoever records gives it: TraceWriter.step(..., segment=NAME), or "
    '"segment": NAME in a step of the JSON lines; which parts a text has (think, answer, a tool\'s) no '
    "recorder knows by itself.",
    "batch_row": "No step says its batch row: the recorder of vLLM gives it, a recorder of one request at a "
    "time has none.",
}
"""What would have to be recorded."""

Groups = Mapping[str, Mapping[str, Any]]


def by_groups(trace: Trace, by: str) -> Groups:
    """Name of each group -> sums, metrics and positions; reads every step."""
    with progress("reading", len(trace.steps)) as show:
        return {name: _group(counts) for name, counts, _ in break_down(trace, by, show)}


def _group(counts: Counts) -> dict[str, Any]:
    return {
        **{key: getattr(counts, key) for key in _SUMS},
        **{metric.name: metric.value(counts) for metric in METRICS},
        "emitted_by_proposals": counts.emitted_by_proposals,
        "positions": [
            {
                "unconditional": entry.unconditional,
                "given_proposed": entry.given_proposed,
                "conditional": entry.conditional,
            }
            for entry in per_position(counts)
        ],
    }


def request_means(groups: Groups) -> dict[str, float | None]:
    """Name of each mean over requests -> value; each request with a proposal weighs the same."""
    used = [group for group in groups.values() if group["proposals"]]
    keys = ("proposals", "drafted", "accepted", "emitted_by_proposals")
    requests = RequestSums(*(np.array([group[key] for group in used], np.int64) for key in keys))
    sums = Sums(counts=Counts(), requests=requests)
    return {f.name: f.value(sums) for f in FORMULAS if f.name.endswith("_mean_of_requests")}


def _two_lines(name: str) -> tuple[str, str]:
    """The head of a column, of two words in two lines.

    >>> _two_lines("accept_length"), _two_lines("alpha1")
    (('accept', 'length'), ('', 'alpha1'))
    """
    above, _, below = name.rpartition("_")
    return above, below


def group_lines(by: str, groups: Groups) -> Iterator[str]:
    """A table with a line for each group; of requests also the means over them."""
    first, second = zip(("", by.replace("_", " ")), *map(_two_lines, _COLUMNS), strict=True)
    cells = {name: [number(group[column]) for column in _COLUMNS] for name, group in groups.items()}
    others = [
        max(map(len, column)) + 2 for column in zip(first[1:], second[1:], *cells.values(), strict=True)
    ]
    # A name that goes into a pipe is wanted whole.
    limit = max(_SHORTEST, _WIDTH - sum(others)) if sys.stdout.isatty() else _MAX_NAME
    yield from table(first, [second, *([visible(name, limit=limit), *row] for name, row in cells.items())])
    if by in _NOT_RECORDED and list(groups) == [NOT_RECORDED]:
        yield from ("", *wrapped("", _NOT_RECORDED[by]))
    if by != "request":
        return
    yield from ("", "mean over the requests, each weighing the same:")
    formulas = {formula.name: formula.formula.removeprefix("mean over requests of ") for formula in FORMULAS}
    for name, value in request_means(groups).items():
        words = name.removesuffix("_mean_of_requests").replace("_", " ")
        yield f"{words:<27}{number(value):>10}  {formulas[name]}"
