"""One reading pass: every tally sees every block once, and the rules judge what they hold.

Owns the pass and what rules ask of the trace as a whole. Memory is bounded by the number of requests, not by
that of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from spectrace.analysis.block import Block, blocks
from spectrace.analysis.diagnosis.sample import MIN_PROMPTS, Sample
from spectrace.analysis.diagnosis.verdict import NotChecked
from spectrace.analysis.numbering import numbered_files, request_names
from spectrace.format.counts import Counts
from spectrace.format.frames import TOKENS
from spectrace.format.records import Reference, Run

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

_PROMPTS_LOOKED_AT = 64
"""Requests whose prompts are compared before they are taken to differ."""


class Tally(Protocol):
    """Bounded statistics over blocks of steps; made with the run's header."""

    FIELDS: Sequence[str]
    """Columns it reads; of the first ``FIRST_STEPS`` steps only, where a class says so."""

    def add(self, block: Block) -> None:
        """Counts a block."""


T = TypeVar("T")


@dataclass
class Facts:
    """What the rules judge."""

    run: Run
    run_mapping: Mapping[str, Any]
    counts: Counts
    num_steps: int
    num_prompts: int
    """Different prompts, counted up to a bound."""
    references: Sequence[Reference]
    problems: Sequence[str] = ()
    token_texts: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """``target`` and ``draft``: texts that the trace holds."""
    prompts: Sequence[Sequence[int]] = ()
    """Prompt ids of the first requests that have any."""
    tallies: dict[type, Any] = field(default_factory=dict)
    fields: frozenset[str] = frozenset()
    """Columns that any step has, of those that were read."""
    request_names: Callable[[Iterable[int]], Mapping[int, str]] = lambda numbers: {}
    """Names of requests by their number within the whole trace; a number may have none."""
    request_prompts: Callable[[Sequence[int]], list[Sequence[int] | None]] = lambda numbers: []
    """Prompt ids of requests by the same numbers, None where they are not known."""
    part_runs: Sequence[Mapping[str, Any]] = ()
    """Header of each file."""

    def of(self, kind: type[T]) -> T:
        """A tally by its class."""
        found: T = self.tallies[kind]
        return found

    @property
    def sample(self) -> Sample:
        """Acceptance."""
        return self.of(Sample)

    @property
    def has_prompts(self) -> bool:
        """Whether there are prompts enough to compare texts."""
        return self.num_prompts >= MIN_PROMPTS

    def not_recorded(self, id_: str, how: str, *missing: str) -> NotChecked:
        """The answer where fields are missing, with the recorder's own reason where it gave one.

        Args:
            id_: rule, or rule and name.
            how: how to get the fields.
            missing: the fields.
        """
        capture = self.run.capture
        reasons = {} if capture is None else capture.unavailable
        missing = tuple(name for name in missing if not self.has(name)) or missing
        given = next((reasons[name] for name in missing if name in reasons), None)
        reason = f"no {', no '.join(missing)}" if given is None else given
        return NotChecked(id=id_, reason=reason, how=how, missing=missing)

    def unavailable(self, id_: str, name: str) -> Iterator[NotChecked]:
        """The answer where the header says that a field which every step must have is not what it seems.

        A trace of counts has ids that are null, and may have positions, or an order, that nobody told.
        """
        capture = self.run.capture
        reason = None if capture is None else capture.unavailable.get(name)
        if reason is not None:
            yield NotChecked(id=id_, reason=reason, how="record the run itself", missing=(name,))

    def has(self, name: str) -> bool:
        """Whether any step has a field, or the header has it, by its path."""
        if name in self.fields or any(path.startswith(f"{name}.") for path in self.fields):
            return True
        value: Any = self.run_mapping
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value is not None or (name == "reference" and bool(self.references))

    @property
    def shares_vocabulary(self) -> bool:
        """The draft is a model or a lookup of its own, with the target's ids and without its states."""
        return self.run.method in SHARED_VOCABULARY


SHARED_VOCABULARY = ("draft_model", "early_exit", "ngram", "suffix")
"""Methods whose draft has the target's vocabulary unless a table says otherwise, and is fed tokens only."""


def collect(
    trace: Trace,
    kinds: Sequence[type],
    on_progress: Callable[[int], None] | None = None,
    first_steps: int | None = None,
) -> Facts:
    """Reads a trace once.

    Args:
        trace: an open trace.
        kinds: classes of the tallies.
        on_progress: told how many steps have been read.
        first_steps: about how many to read; None for all.
    """
    run = trace.run
    classes: list[Any] = list(dict.fromkeys([Sample, *kinds]))
    tallies: dict[type, Any] = {kind: kind(run) for kind in classes}
    read = 0
    fields: set[str] = set()
    for block in blocks(trace, _paths(list(tallies))):
        for counted in tallies.values():
            counted.add(block)
        fields.update(block.columns)
        read += block.num_rows
        if on_progress is not None:
            on_progress(read)
        if first_steps is not None and read >= first_steps:
            break
    prompts, num_prompts = _prompts(trace)
    return Facts(
        run=run,
        run_mapping=trace.run_mapping,
        counts=trace.counts,
        num_steps=len(trace.steps),
        num_prompts=num_prompts,
        references=trace.references,
        problems=trace.problems,
        token_texts=_token_texts(trace),
        prompts=prompts,
        tallies=tallies,
        fields=frozenset(fields),
        request_names=lambda numbers: request_names(trace, numbers),
        request_prompts=lambda numbers: _prompts_of(trace, numbers),
        part_runs=[part.run for part in trace.parts],
    )


def _paths(kinds: Sequence[Any]) -> dict[str, int | None]:
    """Every column that a tally reads, with the number of steps of which it is read."""
    found: dict[str, int | None] = {}
    for kind in kinds:
        limit: int | None = getattr(kind, "FIRST_STEPS", None)
        for path in kind.FIELDS:
            wanted = found.get(path, 0)
            found[path] = None if limit is None or wanted is None else max(wanted, limit)
    return found


def _prompts_of(trace: Trace, numbers: Sequence[int]) -> list[Sequence[int] | None]:
    """Prompt ids by the numbers that `Block.requests` gives them."""
    found: dict[int, Sequence[int]] = {}
    for own in numbered_files(trace):
        for number, said in own.records(numbers):
            ids = said.get("prompt_ids")
            if isinstance(ids, list) and all(type(id_) is int for id_ in ids):
                found[number] = ids
    return [found.get(number) for number in numbers]


def _prompts(trace: Trace) -> tuple[list[Sequence[int]], int]:
    """Prompt ids of the first requests, and how many different prompts there are."""
    requests = trace.requests
    number = len(requests)
    known: set[Any] = set()
    ids: list[Sequence[int]] = []
    for at in range(min(number, _PROMPTS_LOOKED_AT)):
        request = requests[at]
        if request.prompt_ids is not None:
            ids.append(request.prompt_ids)
        known.add(request.prompt_digest or request.prompt_ids or request.request)
    return ids, len(known) + max(0, number - _PROMPTS_LOOKED_AT)


def _token_texts(trace: Trace) -> dict[str, dict[int, str]]:
    """Texts of both vocabularies, each as its own table: what is not there is not taken from the other."""
    texts: dict[str, dict[int, str]] = {"target": {}, "draft": {}}
    for part in trace.parts:
        for body in part.records(TOKENS):
            for space, table in texts.items():
                given = body.get(space)
                if isinstance(given, Mapping):
                    table.update(
                        (int(key), text)
                        for key, text in given.items()
                        if isinstance(text, str) and str(key).isascii() and str(key).isdigit()
                    )
    return texts
