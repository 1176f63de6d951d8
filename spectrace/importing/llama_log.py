"""The log of llama-server at ``-lv 5``: what was drafted, what was accepted, step by step.

Read as bytes, since it holds pieces of tokens that are no UTF-8. The probabilities beside the candidates are
renormalised over the few that the draft's sampler kept: they are no q, and are kept as `draft_candidates`.
Source: ggml-org/llama.cpp, common/speculative.cpp (``draft candidate``), tools/server/server-context.cpp
(``generate_draft``, ``add accepted tokens``, ``slot decode token``, ``draft acceptance``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spectrace.importing.counting import MAX_DRAFTED
from spectrace.importing.reading import Refused
from spectrace.importing.telling import Told

FACTS: Mapping[str, Any] = {
    "engine": {"name": "llama.cpp"},
    "capture": {
        "unavailable": {
            "proposal_ids": "llama.cpp logs no ids for drafts that come from no model",
            "emitted_ids": "llama.cpp logs no ids for drafts that come from no model",
            "draft_top": "logged probabilities are renormalised over a few candidates: see draft_candidates",
        }
    },
}
MAX_STEPS = 1 << 18
"""Most steps read of one log: all are held until its end, as requests interleave."""
_MAX_PIECES = 1 << 16

_CANDIDATE = re.compile(
    rb"(?:seq_id (\d{1,9}), )?draft candidate +(\d{1,4}), pos +(\d{1,6}): +(\d{1,9}) \( *(\d+\.\d+)\)"
    rb"(?: '(.{1,64})'\r?$)?"
)
_SLOT = re.compile(rb"slot [^|]{0,80}id +(\d{1,9}) \| task (-?\d{1,12}) \| (.*)")
_DRAFTED = re.compile(rb"generate_draft: id=(\d{1,9}), #tokens=(\d{1,9}), #draft=(\d{1,9})")
_PLAIN = re.compile(rb"slot decode token, id=(\d{1,9}), n_ctx = \d+, n_tokens = (\d{1,9})")
_ADDED = re.compile(rb"add accepted tokens: sampled=(-?\d{1,9}), ids\.size=(\d{1,9}), n_draft=(\d{1,9})")
_RATE = re.compile(rb"draft acceptance = (\d\.\d+) .{0,80}mean len = +(\d{1,6}\.\d+)")


@dataclass(slots=True)
class _Slot:
    """One slot of the server."""

    candidates: dict[int, dict[int, tuple[int, float]]] = field(default_factory=dict)
    """Depth -> rank -> id and probability, of the proposal that is being drafted."""
    waiting: dict[str, Any] | None = None
    """A round that has begun."""


@dataclass(slots=True)
class _Task:
    """One request."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    reported: dict[str, float] = field(default_factory=dict)


class LogReader:
    """Takes lines one by one; requests come out at the end."""

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}
        self._tasks: dict[int, _Task] = {}
        self._pieces: dict[str, str] = {}
        self._num_steps = 0

    def add(self, line: bytes) -> None:
        """One line of the log.

        Raises:
            Refused: it contradicts what stood before.
        """
        if b"draft candidate" in line:
            found = _CANDIDATE.search(line)
            if found is not None:
                self._candidate(found)
            return
        found = _SLOT.search(line)
        if found is None:
            return
        slot = self._slots.setdefault(int(found[1]), _Slot())
        number, rest = int(found[2]), found[3]
        if (drafted := _DRAFTED.search(rest)) is not None:
            self._begun(slot, number, int(drafted[1]), int(drafted[2]), int(drafted[3]))
        elif (plain := _PLAIN.search(rest)) is not None:
            self._begun(slot, number, int(plain[1]), int(plain[2]), 0)
        elif (added := _ADDED.search(rest)) is not None:
            self._added(slot, number, int(added[1]), int(added[2]), int(added[3]))
        elif (rate := _RATE.search(rest)) is not None:
            said = {"acceptance_rate": float(rate[1]), "accept_length": float(rate[2])}
            self._tasks.setdefault(number, _Task()).reported = said

    def requests(self) -> Iterator[Told]:
        """The requests that had a round, in the order in which they began."""
        for number, task in self._tasks.items():
            if not task.steps:
                continue
            reported = {"reported": task.reported} if task.reported else {}
            yield Told(
                name=f"task {number}",
                steps=task.steps,
                described=reported,
                facts=reported,
                pieces=self._pieces,
            )
            self._pieces = {}

    def _candidate(self, found: re.Match[bytes]) -> None:
        rank, depth, token = int(found[2]), int(found[3]), int(found[4])
        slot = self._slots.setdefault(int(found[1] or 0), _Slot())
        if depth == 0 and rank == 0:
            slot.candidates = {}
        if depth < MAX_DRAFTED and rank < 16:
            slot.candidates.setdefault(depth, {})[rank] = (token, float(found[5]))
        if found[6] is not None and len(self._pieces) < _MAX_PIECES:
            self._pieces.setdefault(str(token), found[6].decode("utf-8", "backslashreplace"))

    def _begun(self, slot: _Slot, number: int, token: int, num_tokens: int, num_drafted: int) -> None:
        """A round begins: the token committed last, and how many tokens are in the cache before it."""
        if num_drafted > MAX_DRAFTED:
            raise Refused(f"{num_drafted:,} draft tokens of one step; at most {MAX_DRAFTED:,} are believed")
        if slot.waiting is not None and not slot.waiting["proposal_ids"] and slot.waiting["task"] == number:
            self._ended(slot, number, {"num_accepted": 0, "emitted_ids": [token], "final_kind": "none"})
        at = slot.candidates
        firsts = [at.get(depth, {}).get(0, (None, 0.0))[0] for depth in range(num_drafted)]
        slot.waiting = {"task": number, "position": num_tokens + 1, "proposal_ids": firsts}
        if any(depth in at for depth in range(num_drafted)):
            ranked = [
                [list(at.get(d, {})[rank]) for rank in sorted(at.get(d, {}))] for d in range(num_drafted)
            ]
            slot.waiting["draft_candidates"] = ranked
        slot.candidates = {}

    def _added(self, slot: _Slot, number: int, token: int, num_ids: int, num_drafted: int) -> None:
        """A round ends: the target's own token, and how many tokens are committed with it."""
        begun = slot.waiting
        if begun is None or begun["task"] != number or len(begun["proposal_ids"]) != num_drafted:
            slot.waiting = None  # the log begins in the middle, or is filtered
            return
        if not 1 <= num_ids <= num_drafted + 1:
            raise Refused(f"task {number} commits {num_ids:,} tokens after {num_drafted:,} draft tokens")
        accepted = begun["proposal_ids"][: num_ids - 1]
        fields: dict[str, Any] = {"num_accepted": num_ids - 1, "emitted_ids": [*accepted, token]}
        if num_ids > num_drafted:
            fields["final_kind"] = "bonus"
        self._ended(slot, number, fields)

    def _ended(self, slot: _Slot, number: int, fields: Mapping[str, Any]) -> None:
        assert slot.waiting is not None
        self._num_steps += 1
        if self._num_steps > MAX_STEPS:
            raise Refused(f"more than {MAX_STEPS:,} steps; cut the log into parts")
        begun = {name: value for name, value in slot.waiting.items() if name != "task"}
        self._tasks.setdefault(number, _Task()).steps.append({**begun, **fields})
        slot.waiting = None


def read_log(lines: Iterable[bytes]) -> Iterator[tuple[int, Told]]:
    """The requests of a log, with the number of its last line.

    Raises:
        Refused: a line contradicts what stood before.
    """
    reader = LogReader()
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            reader.add(line)
        except Refused as error:
            raise Refused(str(error), number) from None
    yield from ((number, told) for told in reader.requests())
