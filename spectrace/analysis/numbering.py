"""The numbers that requests have within a whole trace, where each file numbers its own from 0.

The one place where they are given out: blocks of steps, names and prompts all go by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from spectrace.format.reader import Trace
    from spectrace.format.tracefile import TraceFile


class NumberedFile(NamedTuple):
    """A file of a trace with the numbers of its requests."""

    file: TraceFile
    numbers: range
    """Of the requests that it declares; the one behind them is that of all steps that name another."""

    def names(self, numbers: Iterable[int]) -> dict[int, str]:
        """Number -> name, of those requests that are of this file."""
        return {n: self.file.request_name(n - self.numbers.start) for n in numbers if n in self.numbers}

    def records(self, numbers: Iterable[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Number -> what is said of the request, also after it was declared, of those of this file."""
        details = self.file.details()
        for number in numbers:
            if number in self.numbers:
                own = number - self.numbers.start
                yield number, {**(self.file.request(own) or {}), **details.get(own, {})}


def numbered_files(trace: Trace) -> Iterator[NumberedFile]:
    """The files of a trace in order, each with the numbers of its requests.

    One number is left out behind each file: steps that name a request that it does not declare have it.
    """
    start = 0
    for file in trace.parts:
        numbers = range(start, start + len(file.request_offsets()))
        yield NumberedFile(file, numbers)
        start = numbers.stop + 1


def request_names(trace: Trace, numbers: Iterable[int]) -> dict[int, str]:
    """Number -> name; one that no file declares has none."""
    wanted = list(numbers)
    return {number: name for own in numbered_files(trace) for number, name in own.names(wanted).items()}
