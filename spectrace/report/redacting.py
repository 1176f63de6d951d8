"""A trace in, a smaller one out that may leave the machine: chosen steps, redacted, with the verdicts.

Reads the source twice at most, frame by frame, and writes one new file; the source is never changed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spectrace import __version__
from spectrace.analysis.diagnosis import Diagnosis
from spectrace.errors import RecorderError
from spectrace.format.chunk import Chunk
from spectrace.format.columns import Array, Columns, concatenate, slice_rows
from spectrace.format.fields import LEAVES
from spectrace.format.frames import REFERENCE, TOKENS
from spectrace.format.headers import deep_merge
from spectrace.format.items import Item
from spectrace.format.packer import Packer
from spectrace.format.reader import Trace
from spectrace.format.records import SCHEMA
from spectrace.format.tracefile import TraceFile
from spectrace.report.allowed import GAP_REASONS, STEP_WORDS
from spectrace.report.columns import ColumnRedactor
from spectrace.report.redaction import changed_fields, is_as_it_was, reduced_run
from spectrace.report.reduction import OTHER
from spectrace.report.verdicts import carried

ROWS_PER_FRAME = 1024
BYTES_PER_FRAME = 1 << 20
_NUMBERS = tuple(leaf.number for leaf in LEAVES)
LEFT_OUT = "left out by pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """What a redaction did."""

    source_sha256: str
    source_steps: int
    steps: int
    removed: Mapping[str, int] = field(default_factory=dict)
    """Field -> how many values were dropped or changed."""
    requests: Mapping[str, str] = field(default_factory=dict)
    """Name of a request in the source -> its name in the packed trace. For the sender only."""


def redact(
    trace: Trace,
    out: Path,
    found: Diagnosis,
    *,
    include: frozenset[str] = frozenset(),
    keep: Array | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Redacted:
    """Writes the redacted trace.

    Args:
        trace: the source.
        out: file to create.
        found: the diagnosis of the source, whose verdicts are carried.
        include: ``text`` and ``paths`` keep what their rules in `redaction` say.
        keep: [steps] bool, which steps are kept; all by default.
        on_progress: told how many steps have been read.

    Raises:
        RecorderError: ``out`` exists or cannot be written.
    """
    job = _Job(trace, out, found, include, keep)
    try:
        return job.run(on_progress)
    except BaseException:
        job.packer.abandon()
        raise


def source_digest(trace: Trace) -> str:
    """SHA-256 of the source as it lies on the disk, hex; of several files, of their digests in order."""
    digests = [_file_digest(path) for path in trace.paths]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        sha = hashlib.sha256()
        while block := file.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


class _Job:
    """One redaction under way."""

    def __init__(
        self, trace: Trace, out: Path, found: Diagnosis, include: frozenset[str], keep: Array | None
    ) -> None:
        self.trace, self.include, self.keep = trace, include, keep
        self.columns = ColumnRedactor(include)
        self.digest = source_digest(trace)
        self._salt = os.urandom(4).hex()
        self._names: dict[str, str] = {}
        self._prompts: dict[Any, str] = {}
        self._waiting: list[tuple[int, Columns]] = []
        self._written = 0
        faults: list[str] = []
        self._faults = faults
        self.packer = Packer(out, self._run(found), faults.append, compress=True)

    def _run(self, found: Diagnosis) -> dict[str, Any]:
        numbers = None
        if self.keep is not None:
            places = np.cumsum(self.keep) - 1
            named = {s for f in found.findings for s in f.steps if 0 <= s < len(places)}
            numbers = {step: int(places[step]) for step in named if self.keep[step]}
        run = reduced_run({"schema": SCHEMA, **self.trace.run_mapping}, self.include)
        self._changed = changed_fields(self.trace.run_mapping, run)
        if "text" not in self.include:
            run = deep_merge(run, {"capture": {"text": False}})
        run["packed"] = {
            "by": f"spectrace {__version__}",
            "source_sha256": self.digest,
            "source_steps": len(self.trace),
            "source_counts": _reduced_counts(self.trace, self.include),
            "is_part": self.keep is not None,
            "include": sorted(self.include),
            "verdicts": carried(found, self.include, numbers),
        }
        return run

    def run(self, on_progress: Callable[[int], None] | None) -> Redacted:
        """Reads the source to its end."""
        if self.keep is None:
            self._copy_records()
        base = 0
        for part in self.trace.parts:
            for chunk in part.chunks():
                for rows, columns in self._kept(chunk, base):
                    self._add(rows, columns, part)
                if on_progress is not None:
                    on_progress(base + chunk.first_row + chunk.num_rows)
            self._flush(part)
            base += part.num_rows
        if self.keep is not None:
            self._copy_records()
        for gap in self.trace.gaps:
            is_plain = gap.reason in GAP_REASONS or "text" in self.include
            self.packer.lose(gap.lost, gap.reason if is_plain else OTHER)
        self.packer.lose(0 if self.keep is None else int((~self.keep).sum()), LEFT_OUT)
        if self.trace.end is None:
            self.packer.close_without_end()
        else:
            self.packer.close()
        if self.packer.disk_fault or self._faults:
            raise RecorderError(self.packer.disk_fault or self._faults[0])
        return Redacted(
            source_sha256=self.digest,
            source_steps=len(self.trace),
            steps=self._written,
            removed={**dict.fromkeys(self._changed, 1), **self.columns.removed},
            requests=self._names,
        )

    # --- steps ---

    def _kept(self, chunk: Chunk, base: int) -> Iterator[tuple[int, Columns]]:
        """The rows of a chunk that are kept, in runs."""
        if self.keep is None:
            yield chunk.num_rows, chunk.columns(*_NUMBERS)
            return
        first = base + chunk.first_row
        mask = self.keep[first : first + chunk.num_rows]
        if not mask.any():
            return
        columns = chunk.columns(*_NUMBERS)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
        for start, stop in edges.reshape(-1, 2).tolist():
            yield stop - start, slice_rows(columns, start, stop)

    def _add(self, rows: int, columns: Columns, part: TraceFile) -> None:
        if "request" not in columns or "proposal_ids" not in columns or "emitted_ids" not in columns:
            self.packer.lose(rows, "damaged")
            return
        self._waiting.append((rows, self.columns.redacted(columns, rows)))
        if sum(rows for rows, _ in self._waiting) >= ROWS_PER_FRAME or self._bytes > BYTES_PER_FRAME:
            self._flush(part)

    @property
    def _bytes(self) -> int:
        return sum(c.values.nbytes for _, columns in self._waiting for c in columns.values())

    def _flush(self, part: TraceFile) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        rows = sum(rows for rows, _ in waiting)
        self.packer.add_columns(rows, concatenate(waiting), lambda n: self._name(part.request_name(n)))
        self._written += rows

    # --- other records ---

    def _name(self, name: str) -> str:
        if is_as_it_was("request", self.include):
            return self._names.setdefault(name, name)
        return self._names.setdefault(name, f"r{len(self._names)}")

    def _copy_records(self) -> None:
        """Requests, of a part those that have steps in it, and with the text what belongs to it."""
        for request in self.trace.requests:
            if self.keep is not None and request.request not in self._names:
                continue
            if "text" in self.include:
                fields: dict[str, Any] = {"request": request.request}
                for name in ("prompt_ids", "segment_map", "prompt_digest", "external_id"):
                    if (value := getattr(request, name)) is not None:
                        fields[name] = list(value) if name == "prompt_ids" else value
            else:
                key = request.prompt_digest or request.prompt_ids or request.request
                number = f"prompt {len(self._prompts)} of {self._salt}"
                fields = {
                    "request": self._name(request.request),
                    "prompt_digest": self._prompts.setdefault(key, number),
                }
            self.packer.write([Item("request", fields)])
        if "text" in self.include:
            for part in self.trace.parts:
                for kind, name in ((TOKENS, "tokens"), (REFERENCE, "reference")):
                    for body in part.records(kind):
                        known = ("target", "draft", "request", "boundary", "rows")
                        self.packer.write([Item(name, {k: v for k, v in body.items() if k in known})])


def _reduced_counts(trace: Trace, include: frozenset[str]) -> dict[str, Any]:
    """Tallies of the whole source, in known words."""
    counts = trace.counts.to_mapping()
    if "text" in include:
        return counts
    for name, known in (("final_kinds", "final_kind"), ("stops", "stop")):
        tally: dict[str, int] = {}
        for word, number in counts[name].items():
            shown = word if word in STEP_WORDS[known] else OTHER
            tally[shown] = tally.get(shown, 0) + number
        counts[name] = tally
    return counts
