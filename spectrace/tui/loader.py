"""The trace as the viewer needs it: steps by number, token texts, facts, the nearest rejection.

The only object through which the viewer reads; knows no Textual. Decodes what is asked for and keeps
nothing of the steps. Two threads may ask at once: one lock, held for the read of a chunk at most.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from threading import RLock
from typing import NamedTuple

import numpy as np

from spectrace.analysis.acceptance import accept_length, acceptance_rate
from spectrace.analysis.rejection import NodeState, node_states
from spectrace.format.chunk import Chunk
from spectrace.format.columns import Array
from spectrace.format.counts import REJECTED_COLUMNS, rejected_rows
from spectrace.format.reader import Trace
from spectrace.format.records import Step
from spectrace.format.text import visible
from spectrace.format.tracefile import TraceFile

LONGEST_TEXT = 200
"""Characters of a token that are ever shown."""
_EXACT_ROWS = 20_000
"""Up to here the minimap looks at every step; beyond, at the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the header row says."""

    name: str
    steps: int
    requests: int | None
    """None until somebody counted them: in a long trace that takes a moment."""
    accept_length: float | None
    acceptance_rate: float | None
    state: str
    """closed | recording | unclosed."""
    problems: tuple[str, ...] = ()
    """Damage met so far, one sentence each."""
    lost: int = 0
    """Steps that the recorder had to drop."""


class Piece(NamedTuple):
    """Neighbouring steps that are read together."""

    row: int
    """Number of the first."""
    chunk: Chunk
    part: TraceFile


class Loader:
    """A trace, read on demand.

    Args:
        trace: stays open as long as the loader is used; whoever opened it closes it.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._lock = RLock()
        self._texts: dict[tuple[int, bool], str | None] = {}
        self._num_requests: int | None = None
        self.total = len(trace)
        """Number of steps, damaged ones included."""

    # --- steps ---

    def step(self, row: int) -> Step | None:
        """A step by its number; None when it is damaged."""
        with self._lock:
            return self._trace.steps.get(row)

    def states(self, row: int) -> tuple[Step | None, tuple[NodeState, ...]]:
        """A step and what became of each of its tokens."""
        with self._lock:
            step = self._trace.steps.get(row)
            return step, node_states(step) if step is not None else ()

    def next_rejected(self, row: int, *, forward: bool = True) -> int | None:
        """The nearest step at or after a row (or at or before it) with a rejection, by the index."""
        with self._lock:
            return self._trace.find_rejected(row, forward=forward)

    def chunks(self, row: int) -> Iterator[Piece]:
        """Whole chunks from the one that holds a row on."""
        with self._lock:
            bases = [0, *accumulate(part.num_rows for part in self._trace.parts)]
        first = min(bisect_right(bases, row), len(bases) - 1) - 1
        for base, part in zip(bases[first:], self._trace.parts[first:]):
            chunks = part.chunks(max(0, row - base))
            while True:
                with self._lock:
                    chunk = next(chunks, None)
                if chunk is None:
                    break
                yield Piece(base + chunk.first_row, chunk, part)

    def request_name(self, piece: Piece, number: int) -> str:
        """Name of the request that has a number in the file of a piece."""
        with self._lock:
            return piece.part.request_name(number)

    # --- names ---

    def token(self, token_id: int | None, *, draft: bool = False) -> str | None:
        """Text of a token with everything unprintable escaped, None when the trace has none."""
        if token_id is None:
            return None
        key = (token_id, draft)
        with self._lock:
            if key not in self._texts:
                text = self._trace.token_text(token_id, draft=draft)
                self._texts[key] = None if text is None else visible(text, limit=LONGEST_TEXT)
            return self._texts[key]

    def raw_token(self, token_id: int | None) -> str | None:
        """Text of a token as stored, for searching only."""
        with self._lock:
            return self._trace.token_text(token_id)

    @property
    def longest_request(self) -> int:
        """Characters of the longest request name among a few steps, for the width of a column."""
        rows = {0, self.total // 2, self.total - 1} if self.total else set()
        steps = (self.step(row) for row in rows)
        return max((len(visible(step.request, limit=64)) for step in steps if step is not None), default=0)

    # --- the whole run ---

    @property
    def facts(self) -> Facts:
        """Facts about the run, from the index."""
        trace = self._trace
        with self._lock:
            counts = trace.counts
            return Facts(
                name=visible(trace.paths[0].name, limit=80),
                steps=self.total,
                requests=self._num_requests,
                accept_length=accept_length(counts),
                acceptance_rate=acceptance_rate(counts),
                state=trace.state,
                problems=tuple(visible(problem, limit=400) for problem in trace.problems),
                lost=sum(gap.lost for gap in trace.gaps),
            )

    def count_requests(self) -> None:
        """Counts the requests, for `facts`; reads the whole index."""
        with self._lock:
            self._num_requests = len(self._trace.requests)

    def minimap(self, cells: int) -> list[float | None]:
        """Share of steps with a rejection in each of `cells` equal parts of the trace.

        Returns:
            0..1 a cell; None where no step with a proposal lies.
        """
        if not self.total or cells <= 0:
            return [None] * max(cells, 0)
        first, proposals, rejected = self._weights()
        # A group or step may reach over several cells and a cell over several of them: take the sum over
        # those that touch it.
        edges = np.arange(cells + 1) * self.total // cells
        start = np.maximum(first.searchsorted(edges[:-1], "right") - 1, 0)
        stop = np.maximum(first.searchsorted(edges[1:], "left"), start + 1)
        sums = [np.concatenate([[0], np.cumsum(column)]) for column in (proposals, rejected)]
        proposed, refused = (column[stop] - column[start] for column in sums)
        return [int(r) / int(p) if p else None for p, r in zip(proposed, refused)]

    def _weights(self) -> tuple[Array, Array, Array]:
        """First row, proposals and rejections of each piece that the minimap is made of."""
        if self.total > _EXACT_ROWS:
            with self._lock:
                groups = self._trace.groups
            return (
                groups.row.astype(np.int64),
                groups.proposals.astype(np.int64),
                groups.rejected.astype(np.int64),
            )
        proposals, rejected = np.zeros(self.total, np.int64), np.zeros(self.total, np.int64)
        for row, chunk, _ in self.chunks(0):
            columns = chunk.columns(*REJECTED_COLUMNS)
            stop = row + chunk.num_rows
            rejected[row:stop] = rejected_rows(columns, chunk.num_rows)
            proposal = columns.get("proposal_ids")
            if proposal is not None and proposal.present is None:
                proposals[row:stop] = proposal.lengths[0] > 0
        return np.arange(self.total), proposals, rejected

    def refresh(self) -> int:
        """Looks for what a live writer has added; the number of new steps."""
        with self._lock:
            found = self._trace.refresh()
            self.total = len(self._trace)
            if found:
                self._texts = {key: text for key, text in self._texts.items() if text is not None}
        return found

    @property
    def state(self) -> str:
        """Whether a writer is at work: closed | recording | unclosed."""
        with self._lock:
            return self._trace.state
