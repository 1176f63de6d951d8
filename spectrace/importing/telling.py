"""What a source tells of its requests -> the records of a trace, run first and end last.

Names that occur twice are told apart here; what is not known is gathered and stands in an amendment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import spectrace
from spectrace.format.headers import deep_merge
from spectrace.format.records import SCHEMA
from spectrace.importing.counting import BELIEVED, BELIEVED_PER_BYTE, NO_IDS, cost_of
from spectrace.importing.reading import Refused

Record = dict[str, Any]

_NEVER = (
    "draft_ids", "draft_logprobs", "draft_entropy", "draft_top", "draft_positions", "draft_inputs",
    "target_ids", "target_logprobs", "target_ranks", "target_gaps", "target_top", "overlaps", "taps",
    "nonfinite", "draft_kv_length", "target_kv_length", "draft_ns", "verify_ns", "step_ns", "started_ns",
)  # fmt: skip
"""What no source of counts has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One request."""

    name: str | None
    """None where the source has no name for it."""
    steps: Iterable[Mapping[str, Any]]
    """Fields of each but `request` and `step`."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request's record."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Field -> why it is not known of this request."""
    pieces: Mapping[str, str] = field(default_factory=dict)
    """Token id -> its text, of tokens that were not told before."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts for the header."""


@dataclass(slots=True)
class Read:
    """How much was read of a file."""

    num_bytes: int = 0

    def counting(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """The same lines, counted."""
        for line in lines:
            self.num_bytes += len(line)
            yield line


@dataclass(slots=True)
class Teller:
    """Makes records of what is told, and remembers what the header must say in the end.

    Args:
        source: name of the source, as ``--from`` takes it.
        facts: header facts known from the start.
        has_ids: the source knows token ids.
    """

    source: str
    facts: Mapping[str, Any]
    has_ids: bool = False
    num_told: int = 0
    claimed: int = 0
    """What all steps so far cost, in tokens: see `counting`."""
    names: set[str] = field(default_factory=set)
    notes: dict[str, str] = field(default_factory=dict)
    reported: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Record:
        """The first record."""
        reason = f"what {self.source} writes does not hold it"
        unavailable = dict.fromkeys(_NEVER, reason)
        if not self.has_ids:
            unavailable |= {"proposal_ids": NO_IDS, "emitted_ids": NO_IDS}
        facts: Record = {
            "recorder": {"name": "spectrace", "version": spectrace.__version__},
            "capture": {"mode": "unknown", "text": self.has_ids, "unavailable": unavailable},
        }
        return {"record": "run", "schema": SCHEMA, **deep_merge(facts, self.facts)}

    def told(self, told: Told, read: Read) -> Iterator[Record]:
        """The records of one request.

        Args:
            told: the request.
            read: how much was read of the file that tells of it.

        Raises:
            Refused: a small file claims more steps than are believed.
        """
        name = self._named(told.name)
        self.num_told += 1
        self.notes |= told.notes
        self.more = deep_merge(self.more, told.facts)
        if told.pieces:
            yield {"record": "tokens", "target": dict(told.pieces)}
        yield {"record": "request", "request": name, **told.described}
        for number, fields in enumerate(told.steps):
            self.claimed += cost_of(fields)
            if self.claimed > BELIEVED + BELIEVED_PER_BYTE * read.num_bytes:
                raise Refused(
                    "more steps are claimed by then than a file of this size can hold: is it whole?"
                )
            yield {"record": "step", "request": name, "step": number, **fields}

    def ending(self) -> Iterator[Record]:
        """The last records."""
        more = dict(self.more)
        if self.num_told != 1:
            more.pop("reported", None)  # what an engine says of one request is not said of all
        if self.notes:
            more = deep_merge(more, {"capture": {"unavailable": self.notes}})
        if more:
            yield {"record": "amend", **more}
        yield {"record": "end"}

    def _named(self, given: str | None) -> str:
        """A name that no other request has."""
        name = given or f"r{self.num_told}"
        if name in self.names:
            name = next(
                n for n in (f"{name}#{i}" for i in range(2, 2 + self.num_told + 1)) if n not in self.names
            )
        self.names.add(name)
        return name
