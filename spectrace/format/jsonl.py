"""JSON lines <-> trace: the logical form of a trace, and the door for engines in other languages.

One object a line, ``record`` names its kind, the first is the run. Export after import gives the same lines;
both stream. Numbers that JSON lacks are the texts "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from spectrace.errors import ImportFailed, RecorderError
from spectrace.format.columns import FieldFault
from spectrace.format.fields import FIELD_BY_NAME
from spectrace.format.frames import (
    AMEND,
    GAP,
    REFERENCE,
    REQUEST,
    REQUEST_DETAIL,
    STEP,
    TOKENS,
    is_shallow,
)
from spectrace.format.headers import load
from spectrace.format.items import Item
from spectrace.format.packer import Packer, need_storable
from spectrace.format.reader import Trace
from spectrace.format.records import SCHEMA, Reference, Request, Run, Step, present_fields
from spectrace.format.text import visible
from spectrace.format.tracefile import TraceFile

MAX_LINE = 64 << 20
"""Longest line read, bytes."""
_STEPS_AT_ONCE = 256


# --- export ------------------------------------------------------------------------------------


def export_lines(trace: Trace) -> Iterator[str]:
    """Every record of a trace as a JSON line, without the newline, in file order.

    Of several files the header is the newest's with its amendments applied.
    """
    if len(trace.parts) > 1:
        yield json_line({"record": "run", **trace.run_mapping})
    for at, part in enumerate(trace.parts):
        if len(trace.parts) == 1:
            yield json_line({"record": "run", **part.run_unamended})
        is_newest = all(part is other or part.run_id != other.run_id for other in trace.parts[at:])
        for record in _part_records(part, with_amends=len(trace.parts) == 1):
            # A flight recorder's newest segment counts what every rotation dropped.
            if is_newest or record.get("reason") != "rotated":
                yield json_line(record)
    if trace.end is not None:
        yield json_line({"record": "end", **trace.end})


_NAMES = {
    AMEND: "amend",
    GAP: "gap",
    REFERENCE: "reference",
    REQUEST: "request",
    REQUEST_DETAIL: "request",
    TOKENS: "tokens",
}


def _part_records(part: TraceFile, *, with_amends: bool) -> Iterator[Mapping[str, Any]]:
    for frame in part.frames():
        if frame.kind == STEP:
            chunk = part.chunk(frame)
            if chunk is not None:
                yield from (step_object(Step(chunk, row)) for row in range(chunk.num_rows))
        elif frame.kind in _NAMES and (with_amends or frame.kind != AMEND):
            body = part.body(frame)
            if body is None or body.pop("implied", False):
                continue
            body.pop("number", None)
            yield {"record": _NAMES[frame.kind], **body}
    if part.lost_at_close:
        yield {"record": "gap", "lost": part.lost_at_close, "reason": "disk full"}


def step_object(step: Step) -> dict[str, Any]:
    """A step as the JSON object of trace-model, missing fields left out."""
    fields = present_fields(step)
    extra = fields.pop("extra", None)
    if extra is not None:
        known = {"record", *FIELD_BY_NAME} - {"extra"}
        fields |= {key: value for key, value in _unknown_fields(extra).items() if key not in known}
    return {"record": "step", **fields}


def _unknown_fields(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {"extra": text}
    return found if isinstance(found, dict) and is_shallow(found) else {"extra": text}


def json_line(record: Mapping[str, Any]) -> str:
    """Compact JSON in ASCII, so that no control character reaches a terminal through it."""
    try:
        return _dumps(record)
    except ValueError:
        return _dumps(_without_nonfinite(record))


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_json_default)


def _json_default(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _without_nonfinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nonfinite(item) for item in value]
    return value


# --- import ------------------------------------------------------------------------------------


def read_lines(stream: BinaryIO, source: str = "-") -> Iterator[bytes]:
    """Lines of a stream; one too long to be a record is refused before it fills the memory.

    Raises:
        ImportFailed: a line is longer than `MAX_LINE`.
    """
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise ImportFailed(source, number, f"longer than {MAX_LINE:,} bytes")
        yield line


def import_lines(
    lines: Iterable[bytes | str],
    out: Path,
    *,
    source: str = "-",
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Writes a trace from JSON lines, whole or not at all.

    Args:
        lines: the lines; empty ones are skipped.
        out: file to create.
        source: name of the source in messages.
        on_progress: told the number of bytes or characters read so far, now and then.

    Returns:
        Number of steps.

    Raises:
        ImportFailed: a line does not hold what it must; line and field are named and nothing is written.
        RecorderError: the file exists or cannot be created.
    """
    with _importer(out, source) as importer:
        read = 0
        for line in lines:
            importer.add(line)
            read += len(line)
            if on_progress is not None and importer.line % 1000 == 0:
                on_progress(read)
    return importer.num_steps


def import_records(records: Iterable[tuple[int, dict[str, Any]]], out: Path, *, source: str = "-") -> int:
    """Writes a trace from records in the form of JSON lines, whole or not at all.

    Args:
        records: line of the source that each comes from, and its object; emptied on the way.
        out: file to create.
        source: name of the source in messages.

    Returns:
        Number of steps.

    Raises:
        ImportFailed: a record does not hold what it must, and nothing is written.
        RecorderError: the file exists or cannot be created.
    """
    with _importer(out, source) as importer:
        for line, record in records:
            importer.line = line
            importer.take(record)
    return importer.num_steps


@contextmanager
def _importer(out: Path, source: str) -> Iterator[_Importer]:
    """What takes records; `out` is there when all were sound."""
    if out.exists():
        raise RecorderError(f"{out}: exists already; give another name or remove it")
    partial = out.with_name(f".{out.name}.{os.getpid()}.part")
    importer = _Importer(partial, source)
    try:
        yield importer
        importer.finish()
        partial.rename(out)
    except BaseException:
        importer.abandon()
        raise


class _Importer:
    """Takes lines one by one; nothing stands under the final name before all are sound."""

    def __init__(self, partial: Path, source: str) -> None:
        self.line = 0
        self.num_steps = 0
        self._partial = partial
        self._source = source
        self._packer: Packer | None = None
        self._rows: list[Mapping[str, Any]] = []
        self._row_lines: list[int] = []
        self._end: dict[str, Any] | None = None
        self._fault: str | None = None

    def add(self, line: bytes | str) -> None:
        """One line."""
        self.line += 1
        record = self._parsed(line)
        if record is not None:
            self.take(record)

    def take(self, record: dict[str, Any]) -> None:
        """One record, as its line says it."""
        kind = record.pop("record", None)
        if self._packer is None:
            self._start(kind, record)
        elif self._end is not None:
            self._refuse("a record behind the end record")
        elif kind == "step":
            self._rows.append(record)
            self._row_lines.append(self.line)
            if len(self._rows) >= _STEPS_AT_ONCE:
                self._flush()
        else:
            self._flush()
            self._add_record(self._packer, kind, record)

    def finish(self) -> None:
        """All lines were given."""
        if self._packer is None:
            raise ImportFailed(self._source, self.line, "no run record; the first line must be one")
        self._flush()
        if self._end is None:
            self._packer.close_without_end()
        else:
            self._packer.close(self._end)
        self._need_no_fault()

    def abandon(self) -> None:
        """Removes what was written."""
        if self._packer is not None:
            self._packer.abandon()

    def _refuse(self, what: str, line: int | None = None) -> None:
        raise ImportFailed(self._source, self.line if line is None else line, what)

    def _parsed(self, line: bytes | str) -> dict[str, Any] | None:
        try:
            text = (
                line.decode("utf-8-sig" if self.line == 1 else "utf-8") if isinstance(line, bytes) else line
            )
            record = json.loads(text) if text.strip() else None
        except (ValueError, RecursionError) as error:
            what = (
                "nested too deeply" if isinstance(error, RecursionError) else visible(str(error), limit=200)
            )
            self._refuse(f"not JSON: {what}")
        if record is not None and not isinstance(record, dict):
            self._refuse("not a JSON object")
        return record

    def _start(self, kind: Any, record: dict[str, Any]) -> None:
        if kind != "run":
            self._refuse(f"the first record must be a run, this is {_shown(kind)}")
        schema = record.get("schema")
        if type(schema) is not int:
            self._refuse("field schema must be an integer")
        elif schema > SCHEMA:
            self._refuse(f"schema {schema} is newer than {SCHEMA}, which this spectrace knows")
        load(Run, record, self._report)
        self._need_storable("run", record)
        self._packer = Packer(self._partial, {"schema": schema, **record}, self._on_fault)

    def _on_fault(self, sentence: str) -> None:
        self._fault = self._fault or sentence

    def _need_storable(self, what: str, record: Mapping[str, Any]) -> None:
        try:
            need_storable(what, record)
        except FieldFault as fault:
            self._refuse(f"field {visible(str(fault), limit=200)}")

    def _need_no_fault(self, where: str = "", line: int | None = None) -> None:
        """What the packer or the disk refused ends the import."""
        if self._packer is not None and self._packer.disk_fault is not None:
            raise RecorderError(self._packer.disk_fault)
        if self._fault is not None:
            self._refuse(visible(self._fault, limit=200) + where, line)

    def _report(self, path: str, expected: str) -> None:
        self._refuse(f"field {visible(path)} must be {expected}")

    def _flush(self) -> None:
        if not self._rows or self._packer is None:
            return
        try:
            self._packer.add_rows(self._rows)
        except FieldFault as fault:
            line = self._row_lines[fault.row] if fault.row is not None else None
            self._refuse(f"field {visible(str(fault))}", line)
        first, last = self._row_lines[0], self._row_lines[-1]
        self._need_no_fault(f" (one of the lines {first:,} to {last:,})", first)
        self.num_steps += len(self._rows)
        self._rows, self._row_lines = [], []

    def _add_record(self, packer: Packer, kind: Any, record: dict[str, Any]) -> None:
        if kind == "request":
            if not isinstance(record.get("request"), str):
                self._refuse("field request must be text")
            load(Request, record, self._report)
        elif kind == "reference":
            self._need(record, "boundary", int)
            load(Reference, record, self._report)
        elif kind == "tokens":
            self._check_tokens(record)
        elif kind == "gap":
            self._need(record, "lost", int)
            self._need(record, "reason", str)
        elif kind == "amend":
            load(Run, record, self._report)
        elif kind == "end":
            self._need_storable("end", record)
            self._end = record
            return
        else:
            self._refuse(f"field record: {_shown(kind)} is no kind of record")
        packer.write([Item(kind, record)])
        self._need_no_fault()

    def _need(self, record: Mapping[str, Any], name: str, kind: type) -> None:
        if type(record.get(name)) is not kind:
            self._refuse(f"field {name} must be {'an integer' if kind is int else 'text'}")

    def _check_tokens(self, record: Mapping[str, Any]) -> None:
        for space, table in record.items():
            if space not in ("target", "draft") or not isinstance(table, dict):
                self._refuse("field " + visible(space) + ": tokens hold target and draft, {id: text}")
            for key, text in table.items():
                if not (key.isascii() and key.isdigit() and isinstance(text, str)):
                    self._refuse(f"field {space}: {_shown(key)} is no token id with a text")


def _shown(value: Any) -> str:
    return visible(json.dumps(value), limit=60)
