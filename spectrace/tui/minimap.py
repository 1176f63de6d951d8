"""What the minimap shows: how many of the steps in each part of a trace had a rejection.

Looks at every step of a short trace, and at the index of a long one. Draws nothing.
"""

from __future__ import annotations

import numpy as np

from spectrace.format.columns import Array
from spectrace.format.counts import REJECTED_COLUMNS, is_summed, rejected_rows
from spectrace.tui.loader import EXACT_ROWS, Loader


def rejected_shares(loader: Loader, cells: int) -> list[float | None]:
    """Share of steps with a rejection in each of `cells` equal parts of the trace.

    Returns:
        0..1 a cell; None where no step with a proposal lies.
    """
    total = loader.total  # Read once: the trace may grow meanwhile.
    if not total or cells <= 0:
        return [None] * max(cells, 0)
    first, proposals, rejected = _weights(loader, total)
    # A group or step may reach over several cells and a cell over several of them: take the sum over
    # those that touch it.
    edges = np.arange(cells + 1) * total // cells
    start = np.maximum(first.searchsorted(edges[:-1], "right") - 1, 0)
    stop = np.maximum(first.searchsorted(edges[1:], "left"), start + 1)
    sums = [np.concatenate([[0], np.cumsum(column)]) for column in (proposals, rejected)]
    proposed, refused = (column[stop] - column[start] for column in sums)
    return [int(r) / int(p) if p else None for p, r in zip(proposed, refused)]


def _weights(loader: Loader, total: int) -> tuple[Array, Array, Array]:
    """First row, proposals and rejections of each piece that the minimap of `total` steps is made of."""
    if total > EXACT_ROWS:
        groups = loader.groups
        return (
            groups.row.astype(np.int64),
            groups.proposals.astype(np.int64),
            groups.rejected.astype(np.int64),
        )
    proposals, rejected = np.zeros(total, np.int64), np.zeros(total, np.int64)
    for row, chunk, _ in loader.chunks(0):
        columns = chunk.columns(*REJECTED_COLUMNS)
        if row >= total:
            break
        rows = slice(0, total - row)
        rejected[row : row + chunk.num_rows] = rejected_rows(columns, chunk.num_rows)[rows]
        proposal = columns.get("proposal_ids")
        if proposal is not None and proposal.present is None:
            is_proposal = (proposal.lengths[0] > 0) & ~is_summed(columns, chunk.num_rows)
            proposals[row : row + chunk.num_rows] = is_proposal[rows]
    return np.arange(total), proposals, rejected
