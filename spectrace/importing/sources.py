"""The table of sources, and the way from a file to a trace: recognise, read, write.

Owns no format of any source.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spectrace.errors import ImportFailed
from spectrace.format.jsonl import import_lines, import_records
from spectrace.importing import aiperf, llama_cpp, llama_log, sglang, specspecs, vllm
from spectrace.importing.reading import Refused, documents, inside, text
from spectrace.importing.telling import Read, Record, Teller, Told

JSON_LINES = "jsonl"
"""Name of spectrace's own records, as `export` writes them."""
LLAMA_LOG = "llama.cpp-log"
SPECSPECS = "specspecs"
_MOST_WAITING = 10_000
"""Documents looked at before a file is of no known source: a streamed response says it in its last line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An engine or a tool, and what it writes."""

    facts: Mapping[str, Any]
    """Header facts that hold for all of it."""
    has_ids: bool = False
    """It knows token ids."""
    claims: Callable[[Any], bool] = lambda document: False
    """Whether a JSON document is its own; none where it writes no JSON."""
    requests: Callable[[Any], Iterator[Told]] = lambda document: iter(())
    """The requests that a JSON document tells of."""


SOURCES: Mapping[str, Source] = {
    "vllm": Source(facts=vllm.FACTS, claims=vllm.claims, requests=vllm.requests),
    "sglang": Source(facts=sglang.FACTS, claims=sglang.claims, requests=sglang.requests),
    "dspark": Source(
        facts=sglang.FACTS, has_ids=True, claims=sglang.claims_dump, requests=sglang.requests_of_dump
    ),
    "llama.cpp": Source(facts=llama_cpp.FACTS, claims=llama_cpp.claims, requests=llama_cpp.requests),
    LLAMA_LOG: Source(facts=llama_log.FACTS, has_ids=True),
    "aiperf": Source(facts=aiperf.FACTS, claims=aiperf.claims, requests=aiperf.requests),
    SPECSPECS: Source(facts=specspecs.FACTS, has_ids=True),
}
"""By the name that ``--from`` takes; a document is the first's that claims it."""
NAMES = (JSON_LINES, *SOURCES)
"""What ``--from`` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came of an import."""

    source: str
    num_steps: int
    num_silent: int = 0
    """Documents that tell of no request; pieces of a streamed response, which need not, are left out."""
    unmeasured: Mapping[str, int] = field(default_factory=dict)
    """Why a text ended -> whole responses whose ``metrics`` are null."""


def import_stream(
    lines: Iterable[bytes], out: Path, *, source: str = "-", name: str | None = None
) -> Imported:
    """Makes a trace of JSON, or of a log, that an engine or a tool wrote.

    Args:
        lines: of the file.
        out: file to create.
        source: name of the file in messages.
        name: of the source; None to tell it from what the file holds.

    Raises:
        ImportFailed: the file is of no known source, or does not hold what it must; nothing is written.
        RecorderError: the file exists or cannot be created.
    """
    read = Read()
    lines = read.counting(lines)
    if name is None:
        seen = list(_until_text(lines))
        lines = itertools.chain(seen, lines)
        name = JSON_LINES if _is_own(seen) else None if _is_json(seen) else LLAMA_LOG
    if name == JSON_LINES:
        return Imported(source=name, num_steps=import_lines(lines, out, source=source))
    reading = _Reading(name, read)
    given = llama_log.read_log(lines) if name == LLAMA_LOG else reading.documents(lines)
    return reading.written(given, out, source)


def import_parquet(path: Path, out: Path) -> Imported:
    """Makes a trace of the drafts that specspecs wrote.

    Raises:
        ImportFailed: the file does not hold what it must; nothing is written.
        RecorderError: `out` exists or cannot be created.
        UsageError: pyarrow is not installed.
    """
    given = ((1, told) for told in specspecs.read_parquet(path))
    return _Reading(SPECSPECS, Read(path.stat().st_size)).written(given, out, str(path))


def _until_text(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The first lines, up to one that is not empty."""
    for line in lines:
        yield line
        if line.strip():
            return


def _is_own(lines: Sequence[bytes]) -> bool:
    """Whether the first text of a file is a record of a trace."""
    try:
        _, document = next(documents(lines))
    except (Refused, StopIteration):
        return False
    return isinstance(document, Mapping) and "record" in document


def _is_json(lines: Sequence[bytes]) -> bool:
    """Whether the first text of a file is JSON's, or an event's that carries JSON."""
    text = lines[-1].removeprefix(b"\xef\xbb\xbf").lstrip() if lines else b""
    return text.startswith((b"{", b"[", b"data:", b"event:", b":"))


class _Reading:
    """Requests that a file tells of -> records of a trace.

    Args:
        name: of the source; None until a document tells it.
        read: how much was read of the file.
    """

    def __init__(self, name: str | None, read: Read) -> None:
        self._name = name
        self._read = read
        self._line = 1
        self._num_silent = 0
        self._unmeasured: Counter[str] = Counter()

    def written(self, given: Iterator[tuple[int, Told]], out: Path, source: str) -> Imported:
        """Writes them."""
        try:
            steps = import_records(self._records(given), out, source=source)
        except Refused as error:
            raise ImportFailed(source, error.line or self._line, str(error)) from None
        return Imported(
            source=self._name or "",
            num_steps=steps,
            num_silent=self._num_silent,
            unmeasured=dict(self._unmeasured),
        )

    def documents(self, lines: Iterable[bytes]) -> Iterator[tuple[int, Told]]:
        """The requests of JSON documents, and the lines where they stand."""
        for line, document in self._known(documents(lines)):
            self._line = line
            is_silent = True
            for told in SOURCES[self._name or ""].requests(document):
                is_silent = False
                yield line, told
            if is_silent:
                self._note_silent(document)

    def _note_silent(self, document: Any) -> None:
        """What tells of no request: a piece of a stream, a response without numbers, or anything."""
        choices = inside(document, "choices")
        if isinstance(choices, list) and inside(document, "usage") is None:
            return
        if isinstance(choices, list) and "metrics" in document and document["metrics"] is None:
            ended = text(choices[0], "finish_reason") if choices else None
            self._unmeasured[ended or "not said"] += 1
        else:
            self._num_silent += 1

    def _known(self, given: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """The documents, once one of them has told whose they are."""
        waiting: list[tuple[int, Any]] = []
        while self._name is None and len(waiting) < _MOST_WAITING:
            entry = next(given, None)
            if entry is None:
                return
            waiting.append(entry)
            self._name = next((name for name, one in SOURCES.items() if one.claims(entry[1])), None)
        if self._name is not None:
            yield from waiting
            yield from given

    def _records(self, given: Iterator[tuple[int, Told]]) -> Iterator[tuple[int, Record]]:
        teller = None
        for line, told in given:
            self._line = line
            if teller is None:
                assert self._name is not None
                source = SOURCES[self._name]
                teller = Teller(source=self._name, facts=source.facts, has_ids=source.has_ids)
                yield line, teller.run()
            yield from ((line, record) for record in teller.told(told, self._read))
        if teller is None:
            raise Refused(self._nothing())
        yield from ((self._line, record) for record in teller.ending())

    def _nothing(self) -> str:
        if self._name in (None, LLAMA_LOG):
            return f"no format that import knows; it reads {', '.join(NAMES)} (spectrace import --help)"
        return f"nothing in it tells of speculation in the way of {self._name}"
