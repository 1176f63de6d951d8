"""The trace as the viewer needs it: steps by number, token texts, facts, the nearest rejection.

The only object through which the viewer reads; knows no Textual. Decodes what is asked for and keeps
nothing of the steps. Two threads may ask at once: one lock, held for the read of a chunk at most.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from itertools import accumulate
from os import PathLike
from threading import Event, Lock, RLock
from typing import Any, NamedTuple, TypeVar

from spectrace.analysis.acceptance import accept_length, acceptance_rate
from spectrace.analysis.context import tokens_before
from spectrace.analysis.intervals import Share
from spectrace.analysis.recent import WINDOW, Recent
from spectrace.analysis.rejection import NodeState, node_states
from spectrace.format.chunk import Chunk
from spectrace.format.fields import FIELD_BY_NAME
from spectrace.format.index import Groups
from spectrace.format.reader import Trace
from spectrace.format.reader import open as open_trace
from spectrace.format.records import Run, Step, held
from spectrace.format.text import visible
from spectrace.format.tracefile import TraceFile

T = TypeVar("T")

LONGEST_TEXT = 200
"""Characters of a token that are ever shown."""
_LOOK_BACK = 4096
"""Steps that are looked at for the text before a step; requests of a large batch interleave."""
_REQUEST = FIELD_BY_NAME["request"].leaves[0].number
EXACT_ROWS = 20_000
"""Up to here the minimap looks at every step, and requests are counted at once; beyond, at the index."""
_ROWS_TOGETHER = 2048
"""Steps that are searched in one go, at most, unless one frame has more."""
_MOST_STATES = 16
"""Steps kept of those that were looked at last: a key asks for the same one several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFacts:
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
    recent: Share | None = None
    """While following: the newest proposals, and those whose first token was accepted."""
    has_dropped: bool = False
    """These are accepted less than the run's, beyond chance."""


class Stopped(Exception):
    """The reader no longer waits for this."""


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
        against: files of another trace that this one is compared with.
    """

    def __init__(self, trace: Trace, against: Sequence[str | PathLike[str]] = ()) -> None:
        self._trace = trace
        self.against = tuple(against)
        self._kept: dict[str, tuple[object, Any]] = {}
        self._keeping = Lock()
        self._lock = RLock()
        self._texts: dict[tuple[int, bool], str | None] = {}
        self._states: dict[int, tuple[Step | None, tuple[NodeState, ...]]] = {}
        self._num_requests: int | None = None
        self._stop: Event | None = None
        self._recent: Recent | None = None
        self.total = len(trace)
        """Number of steps, damaged ones included."""
        if self.total <= EXACT_ROWS:
            self.count_requests()

    def stoppable(self, stop: Event) -> Loader:
        """The same trace for work that ends with `Stopped` at its next reading once `stop` is set."""
        other = copy(self)
        other._stop = stop
        return other

    def keep_going(self, _rows: int = 0) -> None:
        """Raises `Stopped` once nobody waits; fits where progress is told."""
        if self._stop is not None and self._stop.is_set():
            raise Stopped

    def once(self, name: str, state: object, make: Callable[[], T]) -> T:
        """What was worked out for the whole trace; made again when `state` is another than last time."""
        with self._keeping:
            if name not in self._kept or self._kept[name][0] != state:
                self._kept[name] = state, make()
            found: T = self._kept[name][1]
            return found

    def known(self, name: str) -> tuple[Any, Any] | None:
        """What `once` made last under a name, and of which state, without waiting; None before."""
        return self._kept.get(name)

    # --- steps ---

    def step(self, row: int) -> Step | None:
        """A step by its number; None when it is damaged."""
        self.keep_going()
        with self._lock:
            return self._trace.steps.get(row)

    def held_step(self, row: int) -> Step | None:
        """The same with every field read, for a screen that is drawn later; None when it is damaged."""
        self.keep_going()
        with self._lock:
            step = self._trace.steps.get(row)
            return None if step is None else held(step)

    def states(self, row: int) -> tuple[Step | None, tuple[NodeState, ...]]:
        """A step and what became of each of its tokens."""
        self.keep_going()
        with self._lock:
            if row not in self._states:
                step = self._trace.steps.get(row)
                # Sums of a request are no proposal: which of its tokens were accepted is not known.
                is_sum = step is not None and "summed" in (step.flags or ())
                found = step, () if step is None or is_sum else node_states(step)
                if len(self._states) >= _MOST_STATES:
                    self._states.clear()
                self._states[row] = found
            return self._states[row]

    def context(self, row: int, size: int) -> tuple[int | None, ...]:
        """The last `size` tokens before a step, as far as the trace has them."""
        step = self.step(row)
        if step is None:
            return ()
        return tokens_before(step, self._earlier(row, step.request), self._prompt_ids(row), size)

    def _earlier(self, row: int, request: str) -> Iterator[Step]:
        """Steps of a request before a row, the newest first, as far back as one looks."""
        for before in range(row - 1, max(-1, row - 1 - _LOOK_BACK), -1):
            step = self.step(before)
            if step is not None and step.request == request:
                yield step

    def _prompt_ids(self, row: int) -> Sequence[int] | None:
        piece = next(self.chunks(row), None)
        if piece is None or not piece.row <= row < piece.row + piece.chunk.num_rows:
            return None
        column = piece.chunk.columns(_REQUEST).get("request")
        if column is None or column.present is not None:
            return None
        number = int(column.values[row - piece.row])
        with self._lock:
            found = (piece.part.request(number) or {}).get("prompt_ids")
            if found is None:
                found = piece.part.details().get(number, {}).get("prompt_ids")
        is_ids = isinstance(found, (list, tuple)) and all(type(token) is int for token in found)
        return found if is_ids else None

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
                self.keep_going()
                with self._lock:
                    chunk = next(chunks, None)
                if chunk is None:
                    break
                yield Piece(base + chunk.first_row, chunk, part)

    def chunks_together(self, row: int) -> Iterator[list[Piece]]:
        """The same, as many at a time as are quickly looked at: a live trace has a frame per engine step."""
        waiting: list[Piece] = []
        rows = 0
        for piece in self.chunks(row):
            if waiting and (
                rows + piece.chunk.num_rows > _ROWS_TOGETHER or piece.part is not waiting[0].part
            ):
                yield waiting
                waiting, rows = [], 0
            waiting.append(piece)
            rows += piece.chunk.num_rows
        if waiting:
            yield waiting

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
    def run(self) -> Run:
        """The header."""
        with self._lock:
            return self._trace.run

    @contextmanager
    def opened_again(self) -> Iterator[Trace]:
        """The same files for a long reading beside the viewer, so that neither waits for the other.

        Raises:
            TraceError: the files are gone or cannot be read any more.
        """
        with open_trace(self._trace.paths) as trace:
            yield trace

    @property
    def facts(self) -> HeaderFacts:
        """Facts about the run, from the index."""
        trace = self._trace
        with self._lock:
            counts = trace.counts
            return HeaderFacts(
                name=visible(trace.paths[0].name, limit=80),
                steps=self.total,
                requests=self._num_requests,
                accept_length=accept_length(counts),
                acceptance_rate=acceptance_rate(counts),
                state=trace.state,
                problems=tuple(visible(problem, limit=400) for problem in trace.problems),
                lost=sum(gap.lost for gap in trace.gaps),
                recent=None if self._recent is None else self._recent.share,
                has_dropped=self._recent is not None
                and self._recent.has_dropped(Share(sum(counts.accepted_at[:1]), counts.proposals)),
            )

    def watch(self) -> None:
        """Keeps an eye on the newest steps from now on, for `facts`."""
        with self._lock:
            self._recent = Recent()
            self._add_recent(0)

    def _add_recent(self, start: int) -> None:
        if self._recent is not None:
            for row in range(max(start, self.total - 2 * WINDOW), self.total):
                step = self._trace.steps.get(row)
                if step is not None:
                    self._recent.add(step)

    def count_requests(self) -> None:
        """Counts the requests, for `facts`; reads the whole index."""
        with self._lock:
            self._num_requests = len(self._trace.requests)

    def requests_named(self, part: str) -> list[str]:
        """Names of the requests with a text in them; that request alone, where the text is a whole name."""
        with self._lock:
            names = self._trace.requests.names
        return [part] if part in names else [name for name in names if part in name]

    def against_files(self, paths: Sequence[str | PathLike[str]]) -> None:
        """Compares with another trace from now on.

        Raises:
            TraceError: it cannot be read.
        """
        open_trace(paths).close()
        self.against = tuple(paths)

    @property
    def groups(self) -> Groups:
        """What the index says of groups of steps."""
        with self._lock:
            return self._trace.groups

    def refresh(self) -> int:
        """Looks for what a live writer has added; the number of new steps."""
        with self._lock:
            found = self._trace.refresh()
            before, self.total = self.total, len(self._trace)
            self._add_recent(before)
            self._states.clear()  # What was damaged may have been half-written only.
            if found and self._num_requests is not None and self.total <= EXACT_ROWS:
                self._num_requests = len(self._trace.requests)
            if found:
                self._texts = {key: text for key, text in self._texts.items() if text is not None}
        return found

    @property
    def state(self) -> str:
        """Whether a writer is at work: closed | recording | unclosed."""
        with self._lock:
            return self._trace.state

    @property
    def loss(self) -> str:
        """What became of a file that nobody writes any more, "" for nothing: gone | replaced | cut."""
        with self._lock:
            if self._trace.state != "unclosed":
                return ""
            return next((part.loss for part in self._trace.parts if part.loss), "")
