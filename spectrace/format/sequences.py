"""Steps and requests of a trace as sequences that read what they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

from spectrace.errors import CorruptRecord
from spectrace.format.headers import load
from spectrace.format.records import Request, Step

if TYPE_CHECKING:
    from spectrace.format.reader import Trace


class Steps(Sequence[Step]):
    """Every step of a trace by its number."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __len__(self) -> int:
        return len(self._trace)

    def __iter__(self) -> Iterator[Step]:
        return iter(self._trace)

    def get(self, index: int) -> Step | None:
        """One step; None when it is damaged.

        Raises:
            IndexError: there is no such number.
        """
        size = len(self._trace)
        if not -size <= index < size:
            raise IndexError(f"step {index:,} of {size:,}")
        row = index % size
        located = self._trace.chunk_at(row)
        return None if located is None else Step(located[0], row - located[1])

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | list[Step]:
        if isinstance(index, slice):
            return list(self._whole(range(*index.indices(len(self)))))
        step = self.get(index)
        if step is None:
            raise CorruptRecord(
                self._trace.paths[-1], f"step {index:,}", "it is damaged; the steps around it can be read"
            )
        return step

    def _whole(self, indices: range) -> Iterator[Step]:
        """The steps that are not damaged; a damaged range is passed over in one go."""
        at = 0
        while at < len(indices):
            row = indices[at]
            step = self.get(row)
            if step is not None:
                yield step
            ahead = 1 if step is not None or indices.step < 0 else self._trace.next_row(row) - row
            at += max(1, -(-ahead // abs(indices.step)))


class Requests(Sequence[Request]):
    """Every request of a trace, in the order in which they were first named.

    A request of several files (ranks) is listed once, with what the first says of it.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._details = [part.details() for part in trace.parts]
        self._places: list[tuple[int, int]] | None = None
        self._numbers: dict[str, int] = {}

    def _index(self) -> Sequence[tuple[int, int]]:
        """Part and number of each request, of several parts."""
        if self._places is None:
            parts = self._trace.parts
            first: dict[str, tuple[int, int]] = {}
            for place in ((p, n) for p, part in enumerate(parts) for n in range(len(part.request_offsets()))):
                first.setdefault(parts[place[0]].request_name(place[1]), place)
            self._places = list(first.values())
        return self._places

    def _place(self, index: int) -> tuple[int, int]:
        """Part and number of one request; those of a single part are not listed, they may be many."""
        if len(self._trace.parts) == 1:
            return 0, range(len(self))[index]
        return self._index()[index]

    def __len__(self) -> int:
        parts = self._trace.parts
        return len(parts[0].request_offsets()) if len(parts) == 1 else len(self._index())

    @overload
    def __getitem__(self, index: int) -> Request: ...
    @overload
    def __getitem__(self, index: slice) -> list[Request]: ...
    def __getitem__(self, index: int | slice) -> Request | list[Request]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        part, number = self._place(index)
        file = self._trace.parts[part]
        fields = {**(file.request(number) or {}), **self._details[part].get(number, {})}
        fields["request"] = file.request_name(number)

        def report(path: str, expected: str) -> None:
            file.complain(f"request {number}: {path} must be {expected}; it is not shown")

        return load(Request, fields, report)

    @property
    def names(self) -> list[str]:
        """Names of all requests."""
        places = map(self._place, range(len(self)))
        return [self._trace.parts[part].request_name(number) for part, number in places]

    def get(self, name: str) -> Request | None:
        """The request of a name."""
        if not self._numbers:
            self._numbers = {found: at for at, found in reversed(list(enumerate(self.names)))}
        at = self._numbers.get(name)
        return None if at is None else self[at]
