"""The writing thread's half of `TraceWriter`: items in, frames in the file out.

Owns numbering of requests, token texts on first use, the index, rotation of a flight recorder and what
happens when the disk is full. Runs on one thread at a time; refuses to raise for a full disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spectrace.errors import RecorderError
from spectrace.format.columns import Columns, FieldFault, concatenate, slice_rows
from spectrace.format.counts import Counts, count_steps
from spectrace.format.fields import REQUIRED
from spectrace.format.frames import (
    AMEND,
    GAP,
    HEAD,
    MAX_BODY,
    REFERENCE,
    REQUEST,
    REQUEST_DETAIL,
    STEP,
    TAIL,
    TOKENS,
    VERSION,
    pack_body,
    unpack_record,
)
from spectrace.format.headers import deep_merge, may_lack_ids, plain
from spectrace.format.items import Batch, Item, called
from spectrace.format.outfile import OutFile, Pending, gap
from spectrace.format.shredding import from_arrays, need_required, shred
from spectrace.format.wire import MAX_ELEMENTS, MAX_ROWS, encode_steps, num_elements

Fault = Callable[[str], None]
TokenText = Callable[[str, int], "str | None"]

FRAME_BYTES = 64 << 10
"""Aim for the size of a STEP frame: damage costs one frame, and a jump decodes one."""
MAX_TEXT = 65_536
"""Longest text of a token and longest name of a request that is stored, characters."""
REQUESTS_KEPT = 65_536
"""Names whose number is remembered; a name that returns later is declared again."""
_TARGET_IDS = ("proposal_ids", "emitted_ids", "target_ids", "target_top.id")
_DRAFT_IDS = ("draft_ids", "draft_top.id")


class Packer:
    """Turns items into frames.

    Args:
        path: file to create.
        run: the header as a plain mapping.
        fault: told of anything that could not be recorded.
        max_bytes: budget of a flight recorder.
        token_text: source of token texts.
        compress: regroup and compress; for repair, not while recording.

    Raises:
        RecorderError: the file cannot be created, or the run record cannot be stored.
    """

    def __init__(
        self,
        path: Path,
        run: dict[str, Any],
        fault: Fault,
        *,
        max_bytes: int | None = None,
        token_text: TokenText | None = None,
        compress: bool = False,
    ) -> None:
        self._run = run
        self._fault = fault
        # Two segments share the budget; what one flush and the index add must fit as well.
        self._segment_bytes = None if max_bytes is None else int(max_bytes * 0.45)
        self._token_text = token_text
        self._compress = compress
        self._row_bytes = 256.0
        self._run_id = os.urandom(16)
        self._segment = 0
        self._rotated = 0
        self._requests: dict[str, int] = {}
        self._described: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, set[int]] = {"target": set(), "draft": set()}
        self._next_request = 0
        try:
            head = self._head()
        except FieldFault as fault:
            raise RecorderError(f"{path}: the run record cannot be stored: {fault}") from None
        self._head_bytes, self._largest = len(head.body), 0
        if self._segment_bytes is not None and self._segment_bytes < 4 * self._head_bytes:
            raise RecorderError(f"{path}: max_bytes must be at least {10 * self._head_bytes:,} for this run")
        self.disk_fault: str | None = None
        """What the disk refused first; everything else that is told as a fault cost single records."""
        self._out = OutFile(path, self._on_disk_fault)
        self._out.write([head])

    def _on_disk_fault(self, sentence: str) -> None:
        self.disk_fault = self.disk_fault or sentence
        self._fault(sentence)

    def _head(self) -> Pending:
        body = {
            "spectrace": VERSION,
            "schema": self._run["schema"],
            "run": self._run,
            "run_id": self._run_id,
            "segment": self._segment,
        }
        return _frame(HEAD, "run", body)

    @property
    def seconds_in_call(self) -> float:
        """How long the file system has been at the call that is under way; 0 when there is none."""
        since = self._out.called_at
        return 0.0 if since is None else time.monotonic() - since

    # --- items ---

    def write(self, items: Sequence[Item | Batch]) -> None:
        """Writes items in their order; consecutive steps share a frame."""
        if self._segment_bytes is None:
            self._write_group(items)
            return
        refused: list[Pending] = []
        made = self._resolved(items, refused)  # before: one function may give any number of steps
        self._out.write(refused)
        for group in self._small_groups(made, self._segment_bytes):
            if self._out.size + self._largest >= max(self._segment_bytes, 2 * self._head_bytes):
                self._rotate()
            before = self._out.size
            self._write_group(group)
            self._largest = max(self._largest, self._out.size - before)

    def _small_groups(
        self, items: Sequence[Item | Batch], segment_bytes: int
    ) -> Iterator[Sequence[Item | Batch]]:
        """Items cut into groups that are small beside a segment, so that it ends when it is full."""
        start = rows = 0
        for at, item in enumerate(items):
            rows += item.num_rows
            if rows * self._row_bytes >= segment_bytes / 16:
                yield items[start : at + 1]
                start, rows = at + 1, 0
        if start < len(items):
            yield items[start:]

    def _write_group(self, items: Sequence[Item | Batch]) -> None:
        pending: list[Pending] = []
        at = 0
        while at < len(items):
            kind, end = items[at].kind, at + 1
            while end < len(items) and items[end].kind == kind and kind in ("step", "batch"):
                end += 1
            group = self._resolved(items[at:end], pending)
            if group:
                self._add(group, pending)
            at = end
        self._out.write(pending)

    def _add(self, items: Sequence[Item | Batch], pending: list[Pending]) -> None:
        """Frames of items of one kind; a fault costs the item that has it."""
        start = len(pending)
        try:
            pending += self._frames(items[0].kind, [item.given for item in items], pending)
        except Exception as error:  # noqa: BLE001  values of any type may be given
            # Requests that were declared on the way keep their numbers.
            pending[start:] = [frame for frame in pending[start:] if frame.kind == REQUEST]
            if len(items) > 1:
                half = len(items) // 2
                self._add(items[:half], pending)
                self._add(items[half:], pending)
            else:
                self._refuse(items[0], error, pending)

    def _frames(self, kind: str, givens: Sequence[Any], declared: list[Pending]) -> list[Pending]:
        if kind == "step":
            rows = [self._numbered(row, declared) for row in givens]
            return self._step_frames(len(rows), shred(rows))
        if kind == "batch":
            parts = [(b.num_rows, self._batch_columns(b, declared)) for b in givens if b.num_rows]
            return self._step_frames(sum(rows for rows, _ in parts), concatenate(parts)) if parts else []
        return self._record_frames(kind, givens[0])

    def _refuse(self, item: Item | Batch, error: Exception, pending: list[Pending]) -> None:
        what = str(error) if isinstance(error, FieldFault) else f"{type(error).__name__}: {error}"
        self._fault(f"a {item.kind} was not recorded: {what.removesuffix(': ')}")
        if item.num_rows:
            reason = "out of memory" if isinstance(error, MemoryError) else "malformed"
            pending.append(gap(item.num_rows, reason))

    def _resolved(self, items: Sequence[Item | Batch], pending: list[Pending]) -> list[Item | Batch]:
        """The items, with what deferred ones return."""
        found: list[Item | Batch] = []
        for item in items:
            try:
                found += called(item)
            except Exception as error:  # noqa: BLE001  a recorder's code, of which nothing is known here
                self._refuse(item, error, pending)
        return found

    def add_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes steps, all or none.

        Raises:
            FieldFault: a row is malformed; ``row`` says which.
        """
        declared: list[Pending] = []
        numbered = []
        for at, row in enumerate(rows):
            try:
                numbered.append(self._numbered(row, declared))
            except FieldFault as fault:
                raise FieldFault(fault.field, fault.expected, at) from None
        columns = shred(numbered, may_lack_ids=may_lack_ids(self._run))
        self._out.write(declared + self._step_frames(len(rows), columns))

    def add_columns(self, num_rows: int, columns: Columns, names: Callable[[int], str]) -> None:
        """Writes steps that are columns already.

        Args:
            num_rows: number of steps.
            columns: their columns.
            names: name of the request that has a number in ``columns``.
        """
        declared: list[Pending] = []
        request = columns["request"]
        old, at = np.unique(request.values, return_inverse=True)
        new = np.array([self._number(names(int(n)), declared) for n in old], np.int64)
        columns = {**columns, "request": replace(request, values=new[at])}
        self._out.write(declared + self._step_frames(num_rows, columns))

    def idle(self) -> None:
        """Nothing to write: a chance to declare what a full disk lost."""
        self._out.idle()

    def lose(self, num_rows: int, reason: str) -> None:
        """Counts steps as lost."""
        if num_rows:
            self._out.write([gap(num_rows, reason)])

    def close(self, end: Mapping[str, Any] | None = None) -> None:
        """Index, end record, tail."""
        self._out.finish(self._end_fields(end))

    def _end_fields(self, given: Any) -> dict[str, Any]:
        totals = _end_record(self._out.totals)
        if given is None:
            return totals
        try:
            fields: dict[str, Any] = plain(given)
            if not isinstance(given, Mapping):
                raise FieldFault("end", "a mapping")
            _frame(TAIL, "end", fields)
        except Exception as error:  # noqa: BLE001  values of any type may be given
            self._fault(f"the end record was not recorded: {error}")
            return totals
        return fields

    def close_without_end(self) -> None:
        """Index and tail, for a trace that was never closed by its recorder."""
        self._out.finish(None)

    def abandon(self) -> None:
        """Closes and removes the file."""
        self._out.abandon()

    def detach(self) -> None:
        """Lets go of the file in a forked process."""
        self._out.detach()

    # --- steps ---

    def _numbered(self, row: Any, declared: list[Pending]) -> Mapping[str, Any]:
        if not isinstance(row, Mapping):
            raise FieldFault("step", "a mapping of fields")
        need_required(row)
        return {**row, "request": self._number(row["request"], declared)}

    def _batch_columns(self, batch: Batch, declared: list[Pending]) -> Columns:
        arrays = batch.copied()
        for name in REQUIRED:
            if name not in arrays:
                raise FieldFault(name, "given: it is missing")
        numbers = np.array([self._number(name, declared) for name in arrays["request"]], np.int64)
        return from_arrays(batch.num_rows, {**arrays, "request": numbers})

    def _step_frames(self, num_rows: int, columns: Columns) -> list[Pending]:
        """Frames of steps, each of a size that is quick to check and to decode."""
        at_once = max(1, min(MAX_ROWS, int(FRAME_BYTES / self._row_bytes)))
        if num_rows <= 2 * at_once:
            return self._one_frame(num_rows, columns)
        starts = range(0, num_rows, at_once)
        cuts = [(start, min(start + at_once, num_rows)) for start in starts]
        return [
            frame
            for start, stop in cuts
            for frame in self._one_frame(stop - start, slice_rows(columns, start, stop))
        ]

    def _one_frame(self, num_rows: int, columns: Columns) -> list[Pending]:
        body = encode_steps(num_rows, columns, compress=self._compress)
        if len(body) <= MAX_BODY and num_rows <= MAX_ROWS and num_elements(columns) <= MAX_ELEMENTS:
            self._row_bytes = len(body) / num_rows
            frame = Pending(STEP, body, num_rows, count_steps(columns, num_rows))
            return [*self._token_frames(columns), frame]
        if num_rows == 1:
            self._fault(f"a step of {len(body):,} bytes is too large and was not recorded")
            return [gap(1, "too large")]
        half = num_rows // 2
        left, right = slice_rows(columns, 0, half), slice_rows(columns, half, num_rows)
        return self._one_frame(half, left) + self._one_frame(num_rows - half, right)

    # --- other records ---

    def _record_frames(self, kind: str, given: Any) -> list[Pending]:
        given = plain(given)
        if kind == "request":
            return self._describe(given)
        if kind == "tokens":
            for space, texts in given.items():
                self._seen[space].update(map(int, texts or ()))
            return _text_frames(given)
        if kind == "gap":
            if type(given["lost"]) is not int or given["lost"] < 0:
                raise FieldFault("gap, lost", "a number of steps")
            return [Pending(GAP, pack_body(given), lost=given["lost"])]
        frame = _frame(AMEND if kind == "amend" else REFERENCE, kind, given)
        if kind == "amend":
            self._run = deep_merge(self._run, given)
        return [frame]

    def _number(self, name: Any, declared: list[Pending]) -> int:
        _need_name(name)
        number = self._requests.get(name)
        if number is not None:
            return number
        fields = self._described.get(name, {"request": name, "implied": True})
        declared.append(self._declared(fields))
        return self._requests[name]

    def _declared(self, fields: dict[str, Any]) -> Pending:
        number = self._next_request
        frame = _frame(REQUEST, "request", {"number": number, **fields})
        if len(self._requests) >= REQUESTS_KEPT:
            for name in list(self._requests)[: REQUESTS_KEPT // 2]:
                del self._requests[name]
                self._described.pop(name, None)
        self._requests[fields["request"]], self._next_request = number, number + 1
        return frame

    def _describe(self, fields: dict[str, Any]) -> list[Pending]:
        name = fields["request"]
        _need_name(name)
        number = self._requests.get(name)
        if number is None:
            frame = self._declared(fields)
        else:
            frame = _frame(REQUEST_DETAIL, "request", {"number": number, **fields})
        if self._segment_bytes is not None:
            self._described[name] = {**self._described.get(name, {}), **fields}
        return [frame]

    def _token_frames(self, columns: Columns) -> list[Pending]:
        """Texts of the ids that steps use for the first time."""
        if self._token_text is None:
            return []
        texts: dict[str, dict[str, str]] = {}
        for space, paths in (("target", _TARGET_IDS), ("draft", _DRAFT_IDS)):
            ids = {i for path in paths if path in columns for i in columns[path].values.tolist()}
            new = ids - self._seen[space]
            self._seen[space] |= new
            texts[space] = {str(i): text for i in sorted(new) if (text := self._text(space, i)) is not None}
        return _text_frames(texts)

    def _text(self, space: str, token_id: int) -> str | None:
        assert self._token_text is not None
        try:
            text = self._token_text(space, token_id)
        except Exception as error:  # noqa: BLE001  a missing text must not cost the step
            self._fault(f"no text for {space} token {token_id}: {type(error).__name__}: {error}")
            return None
        return text if isinstance(text, str) and len(text) <= MAX_TEXT else None

    # --- flight recorder ---

    def _rotate(self) -> None:
        self._rotated = self._out.rotate(self._rotated)
        self._segment += 1
        # Requests of the segment before the last are over, or will be declared anew by name only.
        self._described = {n: d for n, d in self._described.items() if n in self._requests}
        self._requests, self._next_request = {}, 0
        self._seen = {"target": set(), "draft": set()}
        start = [self._head()]
        if self._rotated:
            start.append(Pending(GAP, pack_body({"lost": self._rotated, "reason": "rotated"})))
        self._head_bytes, self._largest = len(start[0].body), 0
        self._out.write(start)


def need_storable(what: str, fields: Mapping[str, Any]) -> bytes:
    """The body of a record.

    Raises:
        FieldFault: it is too large, too deep or holds what no trace can; better refused than unreadable.
    """
    try:
        body = pack_body(fields)
        if len(body) <= MAX_BODY:
            unpack_record(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FieldFault(what, f"what a trace can hold: {error}") from None
    if len(body) > MAX_BODY:
        raise FieldFault(what, f"at most {MAX_BODY:,} bytes; it has {len(body):,}")
    return body


def _frame(kind: bytes, what: str, fields: Mapping[str, Any]) -> Pending:
    return Pending(kind, need_storable(what, fields))


def _text_frames(texts: Mapping[str, Mapping[Any, Any] | None]) -> list[Pending]:
    """Token texts, in as many frames as they need."""
    frames: list[Pending] = []
    part: dict[str, dict[str, str]] = {}
    size = 0
    for space, table in texts.items():
        for key, text in (table or {}).items():
            if not isinstance(text, str) or len(text) > MAX_TEXT:
                raise FieldFault(f"tokens, {space} {key}", f"text of at most {MAX_TEXT:,} characters")
            part.setdefault(space, {})[str(key)] = text
            size += 4 * len(text) + 32
            if size > MAX_BODY // 4:
                frames.append(_frame(TOKENS, "tokens", part))
                part, size = {}, 0
    if part:
        frames.append(_frame(TOKENS, "tokens", part))
    return frames


def _need_name(name: Any) -> None:
    if not isinstance(name, str) or len(name) > MAX_TEXT:
        raise FieldFault("request", f"text of at most {MAX_TEXT:,} characters")


def _end_record(totals: Counts) -> dict[str, Any]:
    return {
        "totals": {
            "steps": totals.steps,
            "draft_tokens": totals.drafted,
            "accepted_tokens": totals.accepted,
            "emitted_tokens": totals.emitted,
        }
    }
