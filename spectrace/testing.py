"""For tests, here and in projects that record: small steps and traces with little typing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spectrace.format.assembly import assemble
from spectrace.format.fields import FIELD_BY_NAME
from spectrace.format.records import Run, Step
from spectrace.format.shredding import shred
from spectrace.format.writer import TraceWriter


class _OneRow:
    """The rows of a step that lies in no file."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._request = fields["request"]
        self._columns = shred([{**fields, "request": 0}])

    def field(self, name: str) -> Sequence[Any] | None:
        if name == "request":
            return [self._request]
        return assemble(self._columns, 1, FIELD_BY_NAME[name])


def step_fields(**fields: Any) -> dict[str, Any]:
    """Fields of a well-formed step: a chain of ``proposal_ids`` of which ``num_accepted`` are accepted.

    What is not given is filled in: three draft tokens, none accepted, the target's token 99 at the end.
    """
    proposal = list(fields.pop("proposal_ids", [11, 12, 13]))
    accepted = fields.pop("num_accepted", 0)
    made: dict[str, Any] = {
        "request": "r0",
        "step": 0,
        "position": 1,
        "proposal_ids": proposal,
        "num_accepted": accepted,
        "emitted_ids": [*proposal[:accepted], 99],
    }
    return {**made, **fields}


def make_step(**fields: Any) -> Step:
    """A step in memory; see `step_fields`.

    >>> make_step(proposal_ids=[5, 6], num_accepted=1).emitted_ids
    (5, 99)
    """
    return Step(_OneRow(step_fields(**fields)))


def write_trace(
    path: str | Path,
    steps: Iterable[Mapping[str, Any]] = (),
    *,
    run: Run | Mapping[str, Any] | None = None,
    requests: Iterable[Mapping[str, Any]] = (),
    **options: Any,
) -> Path:
    """Writes a trace of steps (see `step_fields`) and closes it.

    Args:
        path: file to create.
        steps: fields of each step; what is not given is filled in.
        run: header.
        requests: request records, written first.
        options: passed to `TraceWriter`.
    """
    with TraceWriter(path, run if run is not None else Run(), **{"strict": True, **options}) as writer:
        for request in requests:
            fields = dict(request)
            writer.request(fields.pop("request"), **fields)
        for step in steps:
            writer.step(step_fields(**step))
    return Path(path)


class FakeClock:
    """A clock that moves only when told; nanoseconds."""

    def __init__(self, start_ns: int = 0) -> None:
        self.now_ns = start_ns

    def __call__(self) -> int:
        """The time."""
        return self.now_ns

    def advance(self, by_ns: int) -> None:
        """Moves the clock."""
        self.now_ns += by_ns
