"""Reading traces: `open` and `Trace`, one view of one or several files.

Several files are the ranks of one run or the segments of a flight recorder; their steps follow each other in
the order of the files. Everything is read when it is asked for; nothing is ever written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, cast, overload

import numpy as np

from spectrace.errors import TraceError
from spectrace.format.chunk import Chunk
from spectrace.format.columns import Array
from spectrace.format.counts import Counts
from spectrace.format.fields import LEAF_BY_PATH, Leaf
from spectrace.format.frames import GAP, REFERENCE, TOKENS
from spectrace.format.headers import load
from spectrace.format.index import Groups, groups_of, join_groups
from spectrace.format.outfile import older_segment
from spectrace.format.records import Gap, Reference, Run, Step
from spectrace.format.sequences import Requests, Steps
from spectrace.format.series import Ragged, join_series, named, series
from spectrace.format.text import visible
from spectrace.format.tracefile import TraceFile
from spectrace.format.wire import MAX_ELEMENTS

SUFFIX = ".spectrace"
STATES = {"closed": "closed", "recording": "being recorded", "unclosed": "ended without closing"}
"""What `Trace.state` may be, and how commands, viewer and report say it."""
_CACHED_CHUNKS = 64


def open(path: str | PathLike[str] | Sequence[str | PathLike[str]]) -> Trace:
    """Opens a trace.

    Args:
        path: a file, a directory whose ``*.spectrace`` files belong to one run, or a list of files. A flight
            recorder's older segment (``path`` + ``.1``) is found by itself.

    Raises:
        TraceError: a file cannot be read, is no trace, or there is none.
    """
    given = [path] if isinstance(path, (str, PathLike)) else list(path)
    if not given:
        raise TraceError(None, "no file was given")
    paths = [found for one in given for found in _files(Path(one))]
    parts: list[TraceFile] = []
    try:
        for found in paths:
            part = TraceFile(found)
            _add_once(parts, _older_part(part))
            _add_once(parts, part)
        _compare_runs(parts)
        return Trace(parts)
    except BaseException:
        for part in parts:
            part.close()
        raise


def _add_once(parts: list[TraceFile], part: TraceFile | None) -> None:
    """Adds a file, unless it was named before or found as the older segment of one that was."""
    if part is None:
        return
    if any(part.identity == other.identity for other in parts):
        part.close()
    else:
        parts.append(part)


def _compare_runs(parts: Sequence[TraceFile]) -> None:
    """Says so when files that are opened as one run cannot be of one."""
    for name in ("method", "target", "draft", "sampling"):
        if any(part.run.get(name) != parts[0].run.get(name) for part in parts[1:]):
            parts[-1].complain(
                f"these files are of different runs, they differ in {name}; they are shown as one"
            )
            return


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*" + SUFFIX), key=_by_number)
    if not found:
        raise TraceError(path, f"holds no *{SUFFIX} file")
    return found


def _by_number(path: Path) -> list[str | int]:
    """Sorts rank 10 behind rank 2."""
    parts = re.split(r"(\d+)", path.name, flags=re.ASCII)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)]


def _older_part(part: TraceFile) -> TraceFile | None:
    """The segment a flight recorder wrote before this one, where it is still there."""
    older = older_segment(part.path)
    if not part.segment or not older.is_file():
        return None
    try:
        found = TraceFile(older)
    except TraceError as error:
        part.complain(f"the older segment is not shown: {error}")
        return None
    if found.run_id == part.run_id and found.segment == part.segment - 1:
        return found
    found.close()
    return None


class Trace:
    """What was recorded; made by `spectrace.open`, closed by ``with`` or `close`.

    Args:
        parts: the files, in the order of their steps.
    """

    def __init__(self, parts: Sequence[TraceFile]) -> None:
        self.parts = tuple(parts)
        self.steps = Steps(self)
        self._chunks: dict[tuple[int, int], Chunk] = {}
        self._run: tuple[dict[str, Any], Run] | None = None
        self._tokens: dict[str, dict[int, str]] | None = None
        self._requests: Requests | None = None
        self._bases: list[int] = []
        self._place()

    def _place(self) -> None:
        self._bases = [0, *accumulate(part.num_rows for part in self.parts)]

    # --- header ---

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files."""
        return tuple(part.path for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(part.size for part in self.parts)

    @property
    def run_mapping(self) -> dict[str, Any]:
        """The header as its JSON object, amendments applied; of several files, the newest's."""
        return self._loaded_run()[0]

    @property
    def run(self) -> Run:
        """The header, amendments applied; a field of the wrong type is missing and a problem."""
        return self._loaded_run()[1]

    def _loaded_run(self) -> tuple[dict[str, Any], Run]:
        if self._run is None:
            mapping = self.parts[-1].run
            self._run = mapping, load(Run, mapping, self._complain_of("run"))
        return self._run

    def _complain_of(self, record: str) -> Any:
        def report(path: str, expected: str) -> None:
            self.parts[-1].complain(f"{record}: {path} must be {expected}; it is not shown")

        return report

    @property
    def state(self) -> str:
        """Closed | recording (a writer holds it) | unclosed (the writer is gone)."""
        if any(part.is_locked for part in self.parts if not part.is_complete):
            return "recording"
        # Of a flight recorder's segments only the newest is closed; of ranks each must be.
        newest = {part.run_id: part for part in self.parts}
        return "closed" if all(part.end is not None for part in newest.values()) else "unclosed"

    @property
    def end(self) -> Mapping[str, Any] | None:
        """The end record; None when the recorder did not close the trace."""
        return self.parts[-1].end

    @property
    def problems(self) -> list[str]:
        """Damage met so far, one sentence each."""
        many = len(self.parts) > 1
        found = []
        for part in self.parts:
            where = f"{visible(part.path.name)}: " if many else ""
            found += [where + sentence for sentence in part.problems]
            if part.torn_bytes and not part.is_locked:
                found.append(
                    f"{where}the file ends inside a frame; its last {part.torn_bytes:,} bytes are not shown"
                )
        return found

    @property
    def gaps(self) -> list[Gap]:
        """Steps that were offered and are not in the file, as its recorder declared them."""
        gaps = []
        rotated: dict[bytes, Gap] = {}
        for part in self.parts:
            for body in part.records(GAP):
                lost, reason = body.get("lost"), body.get("reason")
                if type(lost) is not int or not isinstance(reason, str):
                    continue
                if reason == "rotated":
                    # The newest segment counts what every rotation before it dropped.
                    rotated[part.run_id] = Gap(lost=lost, reason=reason)
                else:
                    gaps.append(Gap(lost=lost, reason=reason))
            if part.lost_at_close:
                gaps.append(Gap(lost=part.lost_at_close, reason="disk full"))
        return [*rotated.values(), *gaps]

    @property
    def references(self) -> list[Reference]:
        """Fingerprints of a reference forward."""
        report = self._complain_of("reference")
        bodies = [body for part in self.parts for body in part.records(REFERENCE)]
        return [load(Reference, b, report) for b in bodies if type(b.get("boundary")) is int]

    @property
    def requests(self) -> Requests:
        """Every request, read when asked for."""
        if self._requests is None:
            self._requests = Requests(self)
        return self._requests

    def token_text(self, token_id: int | None, *, draft: bool = False) -> str | None:
        """A token's text as the trace holds it, None where it has none; pass it through `visible` to show it.

        A draft id without a text of its own has that of the target where both share a vocabulary.
        """
        if token_id is None:
            return None
        if self._tokens is None:
            self._tokens = self._read_tokens()
        if draft:
            found = self._tokens["draft"].get(token_id)
            if found is not None or self.run.vocab_map is not None or self._tokens["draft"]:
                return found
        return self._tokens["target"].get(token_id)

    def _read_tokens(self) -> dict[str, dict[int, str]]:
        texts: dict[str, dict[int, str]] = {"target": {}, "draft": {}}
        for part in self.parts:
            for body in part.records(TOKENS):
                for space, table in texts.items():
                    table.update(_token_table(body.get(space)))
        return texts

    # --- counts ---

    @property
    def counts(self) -> Counts:
        """Tallies of the whole run, from the index."""
        total = Counts()
        for part in self.parts:
            total.add(part.counts)
        return total

    @property
    def groups(self) -> Groups:
        """The index: groups of about 64 KiB of steps; ``row`` counts over the whole trace."""
        moved = []
        for base, part in zip(self._bases, self.parts):
            groups = part.groups
            columns = [getattr(groups, name) for name in Groups.__slots__]
            columns[1] = columns[1] + np.uint64(base)
            moved.append(Groups(*columns))
        return join_groups(moved) if moved else groups_of([])

    # --- steps ---

    def __len__(self) -> int:
        return self._bases[-1]

    def __iter__(self) -> Iterator[Step]:
        for chunk in self.chunks():
            for row in range(chunk.num_rows):
                yield Step(chunk, row)

    def chunks(self) -> Iterator[Chunk]:
        """Every whole chunk of steps, in order."""
        for part in self.parts:
            yield from part.chunks()

    def chunk_at(self, row: int) -> tuple[Chunk, int] | None:
        """The chunk that holds a step, and the number of its first step; None when damaged."""
        at = bisect_right(self._bases, row) - 1
        base, part = self._bases[at], self.parts[at]
        for (owner, first), chunk in self._chunks.items():
            if owner == at and first <= row - base < first + chunk.num_rows:
                return chunk, base + first
        found = part.chunk_at(row - base)
        if found is None:
            return None
        while len(self._chunks) >= _CACHED_CHUNKS or self._cached_elements > MAX_ELEMENTS:
            self._chunks.pop(next(iter(self._chunks)))
        self._chunks[at, found.first_row] = found
        return found, base + found.first_row

    def next_row(self, row: int) -> int:
        """The step behind a damaged one, or behind all the damaged ones around it where they are known."""
        at = bisect_right(self._bases, row) - 1
        return self._bases[at] + self.parts[at].next_row(row - self._bases[at])

    @property
    def _cached_elements(self) -> int:
        return sum(chunk.body.num_elements for chunk in self._chunks.values())

    def find_rejected(self, start: int, *, forward: bool = True) -> int | None:
        """The nearest step at or after ``start`` (or at or before it) whose proposal was not accepted whole.

        Groups without such a step are passed over by the index.
        """
        groups = self.groups
        rows, rejected = groups.row.astype(np.int64), groups.rejected
        at = max(0, int(rows.searchsorted(start, "right")) - 1)
        while 0 <= at < len(rows):
            if rejected[at]:
                end = int(rows[at]) + int(groups.rows[at])
                found = self._rejected_between(int(rows[at]), end)
                near = [r for r in found if (r >= start if forward else r <= start)]
                if near:
                    return near[0] if forward else near[-1]
            at += 1 if forward else -1
        return None

    def _rejected_between(self, start: int, stop: int) -> list[int]:
        found: list[int] = []
        row = start
        while row < stop:
            located = self.chunk_at(row)
            if located is None:
                row = self.next_row(row)
                continue
            chunk, first = located
            at = bisect_right(self._bases, row) - 1
            found += [r - chunk.first_row + first for r in self.parts[at].rejected_in(chunk)]
            row = first + chunk.num_rows
        return found

    @overload
    def columns(self, name: str, /) -> Any: ...
    @overload
    def columns(self, name: str, second: str, /, *more: str) -> dict[str, Any]: ...
    def columns(self, *names: str) -> Any:
        """Whole columns, for analysis.

        Args:
            names: fields of `Step` (`taps` and other objects by ``field.key``, such as ``taps.rms``).

        Returns:
            For one name its column, for several a dict. A scalar is an array [rows] (masked where
            rows lack it), a list a `Ragged`, text an array of str. Damaged steps are left out.

        Raises:
            KeyError: no such field.
        """
        leaves = [LEAF_BY_PATH[name] for name in names]
        parts = [self._part_series(part, leaves) for part in self.parts]
        whole = {name: join_series([part[at] for part in parts]) for at, name in enumerate(names)}
        return whole[names[0]] if len(names) == 1 else whole

    def _part_series(self, part: TraceFile, leaves: Sequence[Leaf]) -> list[Array | Ragged]:
        numbers = {leaf.number for leaf in leaves}
        chunks = [(chunk.num_rows, chunk.columns(*numbers)) for chunk in part.chunks()]
        found = [series(leaf, chunks) for leaf in leaves]
        for at, leaf in enumerate(leaves):
            if leaf.path == "request":
                found[at] = named(cast(Array, found[at]), part.request_name)
        return found

    # --- following ---

    def refresh(self) -> int:
        """Looks for what a live writer has added; the number of new steps."""
        before = len(self), [part.data_end for part in self.parts]
        for part in self.parts:
            part.refresh()
        self._follow_rotation()
        self._place()
        if before != (len(self), [part.data_end for part in self.parts]):
            self._run = self._tokens = self._requests = None
        return len(self) - before[0]

    def _follow_rotation(self) -> None:
        """A flight recorder has put a new file under the newest one's name."""
        newest = self.parts[-1]
        if not newest.is_complete or newest.end is not None or not newest.was_replaced:
            return
        try:
            found = TraceFile(newest.path)
        except TraceError:
            return  # its header is not whole yet
        if found.run_id == newest.run_id and found.segment > newest.segment:
            self.parts = (*self.parts, found)
        else:
            found.close()

    def close(self) -> None:
        """Closes the files."""
        for part in self.parts:
            part.close()

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Trace({', '.join(map(str, self.paths))}: {len(self):,} steps, {self.state})"


def _token_table(table: Any) -> dict[int, str]:
    if type(table) is not dict:
        return {}
    return {
        int(key): text
        for key, text in table.items()
        if isinstance(text, str) and key.isascii() and key.isdigit() and len(key) < 20
    }
