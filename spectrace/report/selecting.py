"""Which steps go into a pack: those asked for, and where they do not fit, the most telling ones.

Telling are the findings' witnesses and the first divergence of each request, with the steps around them,
and an even sample of the rest.
"""

from __future__ import annotations

import numpy as np

from spectrace.analysis.diagnosis import Diagnosis
from spectrace.errors import UsageError
from spectrace.format.columns import Array
from spectrace.format.counts import REJECTED_COLUMNS, rejected_rows
from spectrace.format.fields import FIELD_BY_NAME
from spectrace.format.reader import Trace
from spectrace.format.text import visible

AROUND = 64
"""Steps kept on each side of the one asked for."""
BESIDE = 2
"""Steps kept on each side of a telling one."""
STRETCH = 16
"""Steps of a sample that follow each other: rules and readers look at neighbours."""
MAX_FIRSTS = 256
"""Requests whose first divergence is kept."""
_REQUEST = FIELD_BY_NAME["request"].leaves[0].number


def asked_for(trace: Trace, *, around: int | None = None, request: str | None = None) -> Array | None:
    """[steps] bool: the steps asked for; None for all.

    Args:
        trace: an open trace.
        around: number of a step; it and those near it are kept.
        request: name of a request; its steps alone are kept.

    Raises:
        UsageError: there is no such step or request.
    """
    if around is None and request is None:
        return None
    keep = np.ones(len(trace), bool)
    if around is not None:
        if not 0 <= around < len(trace):
            raise UsageError(f"--around {around:,}: the trace has {len(trace):,} steps, from 0")
        keep[: max(0, around - AROUND)] = keep[around + AROUND + 1 :] = False
    if request is not None:
        keep &= _of_request(trace, request)
    return keep


def _of_request(trace: Trace, name: str) -> Array:
    mask = np.zeros(len(trace), bool)
    base = 0
    for part in trace.parts:
        for chunk in part.chunks():
            column = chunk.columns(_REQUEST).get("request")
            if column is not None and column.present is None:
                numbers = [n for n in np.unique(column.values).tolist() if part.request_name(n) == name]
                first = base + chunk.first_row
                mask[first : first + chunk.num_rows] = np.isin(column.values, numbers)
        base += part.num_rows
    if not mask.any():
        raise UsageError(f"--request: no step of a request named {visible(name, limit=80)}")
    return mask


def telling(trace: Trace, found: Diagnosis) -> Array:
    """[steps] bool: witnesses of findings and first divergences, with the steps beside them."""
    mask = np.zeros(len(trace), bool)
    rows = [step for finding in found.findings for step in finding.steps if 0 <= step < len(trace)]
    for row in [*rows, *_first_divergences(trace)]:
        mask[max(0, row - BESIDE) : row + BESIDE + 1] = True
    return mask


def _first_divergences(trace: Trace) -> list[int]:
    """The first step of each request in which the target refused a token."""
    firsts: dict[tuple[int, int], int] = {}
    base = 0
    for at, part in enumerate(trace.parts):
        for chunk in part.chunks():
            columns = chunk.columns(_REQUEST, *REJECTED_COLUMNS)
            request = columns.get("request")
            if request is not None and request.present is None:
                rows = np.flatnonzero(rejected_rows(columns, chunk.num_rows))
                for row, number in zip(rows.tolist(), request.values[rows].tolist()):
                    firsts.setdefault((at, number), base + chunk.first_row + row)
            if len(firsts) >= MAX_FIRSTS:
                return list(firsts.values())[:MAX_FIRSTS]
        base += part.num_rows
    return list(firsts.values())


def thinned(wanted: Array, first: Array, share: float) -> Array:
    """The telling steps among the wanted, and an even sample of the others.

    Args:
        wanted: [steps] bool, what would be kept if there were room.
        first: [steps] bool, what is kept first.
        share: share of the wanted steps that has room.
    """
    room = int(wanted.sum() * share)
    keep: Array = wanted & first
    telling_rows = np.flatnonzero(keep)
    if len(telling_rows) > room:
        keep[telling_rows[room:]] = False
        return keep
    others = np.flatnonzero(wanted & ~first)
    stretches = np.array_split(others, max(1, len(others) // STRETCH))
    count = min(len(stretches), (room - len(telling_rows)) // STRETCH)
    for at in np.linspace(0, len(stretches) - 1, count).astype(np.int64).tolist():
        keep[stretches[at]] = True
    return keep
