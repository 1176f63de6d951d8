"""The table of sources, and the way from a file to a trace: recognise, read, write.

Owns no format of any source.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectrace.errors import ImportFailed
from spectrace.format.jsonl import import_lines, import_records
from spectrace.importing import aiperf, llama_cpp, llama_log, sglang, specspecs, vllm
from spectrace.importing.reading import Refused, documents
from spectrace.importing.telling import Record, Teller, Told

JSON_LINES = "jsonl"
"""spectrace's own records, as `export` writes them."""
LLAMA_LOG = "llama.cpp-log"
"""What llama-server logs at -lv 5."""
SPECSPECS = "specspecs"
"""Parquet files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An engine or tool that writes JSON documents."""

    what: str
    """What is read of it, for a person."""
    claims: Callable[[Any], bool]
    """Whether a document is its own."""
    requests: Callable[[Any], Iterator[Told]]
    """The requests that a document tells of; none where it tells of none."""
    facts: Mapping[str, Any]
    """Header facts that hold for all of it."""
    has_ids: bool = False
    """It knows token ids."""


SOURCES: Mapping[str, Source] = {
    "vllm": Source(
        what="vLLM's responses, with --per-request-spec-decode-metrics",
        claims=vllm.claims,
        requests=vllm.requests,
        facts=vllm.FACTS,
    ),
    "sglang": Source(
        what="SGLang's responses, with counts in meta_info",
        claims=sglang.claims,
        requests=sglang.requests,
        facts=sglang.FACTS,
    ),
    "dspark": Source(
        what="SGLang's server_info with a DSpark dump, from SGLANG_DSPARK_DEBUG_DUMP=core,reqs",
        claims=sglang.claims_dump,
        requests=sglang.requests_of_dump,
        facts=sglang.FACTS,
        has_ids=True,
    ),
    "llama.cpp": Source(
        what="llama-server's responses, with draft_n in timings",
        claims=llama_cpp.claims,
        requests=llama_cpp.requests,
        facts=llama_cpp.FACTS,
    ),
    "aiperf": Source(
        what="AIPerf's profile_export.jsonl, with --export-level records",
        claims=aiperf.claims,
        requests=aiperf.requests,
        facts=aiperf.FACTS,
    ),
}
"""By the name that ``--from`` takes; a document is the first's that claims it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came of an import."""

    source: str
    num_steps: int
    num_silent: int = 0
    """Documents that tell of no request."""


def import_stream(
    lines: Iterable[bytes], out: Path, *, source: str = "-", name: str | None = None
) -> Imported:
    """Makes a trace of what an engine or a tool wrote.

    Args:
        lines: of the file.
        out: file to create.
        source: name of the file in messages.
        name: of the source; None to tell it from what the file holds.

    Raises:
        ImportFailed: the file is of no known source, or does not hold what it must; nothing is written.
        RecorderError: the file exists or cannot be created.
    """
    lines = iter(lines)
    seen: list[bytes] = []
    if name is None:
        seen = list(_until_text(lines))
        lines = itertools.chain(seen, lines)
        name = JSON_LINES if seen and _is_own(seen[-1]) else None
    if name == JSON_LINES:
        return Imported(source=name, num_steps=import_lines(lines, out, source=source))
    is_log = name == LLAMA_LOG or (name is None and not _is_json(seen))
    if is_log:
        return _written(_Requests(LLAMA_LOG, llama_log.FACTS, llama_log.read_log(lines)), out, source)
    return _written(_Documents(lines, name), out, source)


def import_parquet(path: Path, out: Path) -> Imported:
    """Makes a trace of the drafts that specspecs wrote.

    Raises:
        ImportFailed: the file does not hold what it must; nothing is written.
        RecorderError: `out` exists or cannot be created.
        UsageError: pyarrow is not installed.
    """
    told = ((1, told) for told in specspecs.read_parquet(path))
    return _written(_Requests(SPECSPECS, specspecs.FACTS, told), out, str(path))


def _written(reading: _Requests | _Documents, out: Path, source: str) -> Imported:
    try:
        steps = import_records(reading.records(), out, source=source)
    except Refused as error:
        raise ImportFailed(source, error.line or reading.line, str(error)) from None
    return Imported(source=reading.name, num_steps=steps, num_silent=reading.num_silent)


def _until_text(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The first lines, up to one that is not empty."""
    for line in lines:
        yield line
        if line.strip():
            return


def _is_json(lines: Sequence[bytes]) -> bool:
    """Whether the first text of a file is JSON's, or an event's that carries JSON."""
    text = lines[-1].removeprefix(b"\xef\xbb\xbf").lstrip() if lines else b""
    return text.startswith((b"{", b"[", b"data:", b"event:", b":"))


def _is_own(line: bytes) -> bool:
    """Whether a line is a record of a trace."""
    try:
        _, document = next(documents([line]))
    except (Refused, StopIteration):
        return False
    return isinstance(document, Mapping) and "record" in document


class _Requests:
    """Requests that a source tells of by itself -> records."""

    def __init__(self, name: str, facts: Mapping[str, Any], given: Iterator[tuple[int, Told]]) -> None:
        self.name = name
        self.line = 1
        self.num_silent = 0
        self._teller = Teller(source=name, facts=facts, has_ids=True)
        self._given = given

    def records(self) -> Iterator[tuple[int, Record]]:
        """Every record, with the line it comes from."""
        for line, told in self._given:
            self.line = line
            if not self._teller.num_told:
                yield line, self._teller.run()
            yield from ((line, record) for record in self._teller.told(told))
        if not self._teller.num_told:
            raise Refused(_unknown(""))
        yield from ((self.line, record) for record in self._teller.ending())


class _Documents:
    """JSON documents of one source -> records."""

    def __init__(self, lines: Iterable[bytes], name: str | None) -> None:
        self.name = name or ""
        self.line = 1
        self.num_silent = 0
        self._lines = lines
        self._teller = None if name is None else self._teller_of(name)

    def records(self) -> Iterator[tuple[int, Record]]:
        """Every record, with the line it comes from."""
        given = self._known(documents(self._lines))
        for self.line, document in given:
            assert self._teller is not None
            if not self._teller.num_told and not self.num_silent:
                yield self.line, self._teller.run()
            was_told = self._teller.num_told
            for told in SOURCES[self.name].requests(document):
                yield from ((self.line, record) for record in self._teller.told(told))
            self.num_silent += self._teller.num_told == was_told
        if self._teller is None or not self._teller.num_told:
            raise Refused(_unknown(self.name))
        yield from ((self.line, record) for record in self._teller.ending())

    def _known(self, given: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """The documents, once one of them has told whose they are."""
        if self._teller is not None:
            yield from given
            return
        waiting: list[tuple[int, Any]] = []
        for line, document in given:
            self.line = line
            waiting.append((line, document))
            if len(waiting) > _MOST_WAITING:
                return
            found = next((name for name, source in SOURCES.items() if source.claims(document)), None)
            if found is not None:
                self.name, self._teller = found, self._teller_of(found)
                yield from waiting
                yield from given
                return

    @staticmethod
    def _teller_of(name: str) -> Teller:
        return Teller(source=name, facts=SOURCES[name].facts, has_ids=SOURCES[name].has_ids)


_MOST_WAITING = 10_000
"""Documents looked at before a file is of no known source: a streamed response says it in its last line."""


def _unknown(name: str) -> str:
    if name:
        return f"nothing in it tells of speculation in the way of {name}: {SOURCES[name].what}"
    return f"no format that import knows; it reads {', '.join(NAMES)} (spectrace import --help)"


NAMES = (JSON_LINES, *SOURCES, LLAMA_LOG, SPECSPECS)
"""What ``--from`` takes."""
