"""Synthetic steps of a serving engine: 56 requests at a time, 5 draft tokens each, from a seed.

Token ids are drawn from a Zipf distribution, ids in the order of frequency as in a BPE vocabulary;
log-probabilities, ranks, gaps and times are continuous, so nothing but the ids and counts repeats. Owns the
shape of the data; measures nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import spectrace
from spectrace.format.counts import count_steps
from spectrace.format.fields import LEAVES
from spectrace.format.frames import HEAD, HEADER_SIZE, REQUEST, STEP, Frame, pack_body, unpack_body
from spectrace.format.items import Batch
from spectrace.format.jsonl import json_line, step_object
from spectrace.format.outfile import OutFile, Pending
from spectrace.format.packer import Packer
from spectrace.format.scan import read_frame
from spectrace.format.tracefile import TraceFile

Array = npt.NDArray[Any]
Arrays = dict[str, Any]

BATCH = 56
"""Requests per engine step."""
K = 5
"""Draft tokens per step."""
TOP = 5
"""Alternatives kept per position in a full record."""
BOUNDARIES = (2, 16, 29)
"""Hidden-state taps of a full record."""
VOCAB_SIZE = 128_256
STEP_NS = 13_000_000
"""Time of one engine step."""
NEEDLE = "req-needle"
"""The request that a search looks for."""
LISTED_FIELDS = (
    "request", "step", "position", "proposal_ids", "target_ids", "num_accepted", "emitted_ids", "draft_ns",
    "verify_ns",
)  # fmt: skip
"""What `write_json_lines` keeps of a step."""
_REPEATED = 200
"""Engine steps that a long trace repeats."""
_ALPHA = 0.75
"""Chance that a draft token is accepted, given that all before it were."""
_LAST = 1 / 64
"""Chance that a step is a request's last."""


class SyntheticEngine:
    """Makes engine steps.

    Args:
        batch: requests per engine step.
        full: also what a recorder captures by default: alternatives, gaps, entropies, taps.
        seed: of every random number.
    """

    def __init__(self, batch: int = BATCH, *, full: bool = False, seed: int = 0) -> None:
        self.batch = batch
        self.full = full
        self._rng = np.random.default_rng(seed)
        weights = 1.0 / np.arange(1, VOCAB_SIZE + 1)
        self._zipf = np.cumsum(weights / weights.sum())
        self._engine_step = 0
        self._request = np.arange(batch)
        self._step = np.zeros(batch, np.int64)
        self._position = self._rng.integers(20, 4000, batch)

    def engine_step(self) -> Arrays:
        """Arrays of one engine step, as `TraceWriter.steps` takes them."""
        accepted = np.minimum(self._rng.geometric(1 - _ALPHA, self.batch) - 1, K)
        arrays = self._bookkeeping(accepted) | self._tokens(accepted)
        if self.full:
            arrays |= self._alternatives() | self._taps()
        self._advance(accepted)
        return arrays

    def _bookkeeping(self, accepted: Array) -> Arrays:
        jitter = self._rng.integers(0, 400_000, (3, 1)) + self._rng.integers(0, 100, (3, self.batch))
        arrays = {
            "request": [f"req-{number:07d}" for number in self._request.tolist()],
            "step": self._step.copy(),
            "engine_step": np.full(self.batch, self._engine_step),
            "position": self._position.copy(),
            "num_accepted": accepted,
            "draft_ns": 2_800_000 + jitter[0],
            "verify_ns": 9_200_000 + jitter[1],
        }
        if self.full:
            arrays |= {
                "num_accepted_reported": accepted.copy(),
                "logits_kind": ["processed"] * self.batch,
                "final_kind": ["bonus" if count == K else "recovered" for count in accepted.tolist()],
                "draft_kv_length": self._position - 1,
                "target_kv_length": self._position - 1,
                "step_ns": arrays["draft_ns"] + arrays["verify_ns"] + jitter[2],
                "started_ns": np.full(self.batch, self._engine_step * STEP_NS) + jitter[0],
            }
        return arrays

    def _tokens(self, accepted: Array) -> Arrays:
        """Ids that agree as far as they were accepted, log-probabilities and ranks."""
        proposal = self._ids(self.batch, K)
        target = self._ids(self.batch, K + 1)
        held = np.arange(K) < accepted[:, None]  # [B, K]
        target[:, :K] = np.where(held, proposal, target[:, :K])
        lengths = accepted + 1
        return {
            "proposal_ids": proposal,
            "draft_logprobs": self._logprobs(self.batch, K),
            "target_ids": target,
            "target_logprobs": self._logprobs(self.batch, K) - np.where(held, 0, 3).astype(np.float32),
            "target_ranks": np.where(held, 1, 1 + self._rng.geometric(0.1, (self.batch, K))),
            "emitted_ids": (target[np.arange(K + 1) < lengths[:, None]], lengths),
        }

    def _alternatives(self) -> Arrays:
        nothing = np.zeros(self.batch, np.int64)
        return {
            "draft_entropy": -self._logprobs(self.batch, K),
            "draft_top.id": self._ids(self.batch, K, TOP),
            "draft_top.logprob": np.sort(self._logprobs(self.batch, K, TOP))[:, :, ::-1],
            "target_gaps": -self._logprobs(self.batch, K + 1),
            "target_top.id": self._ids(self.batch, K + 1, TOP),
            "target_top.logprob": np.sort(self._logprobs(self.batch, K + 1, TOP))[:, :, ::-1],
            "overlaps": self._rng.random((self.batch, K), np.float32),
            "nonfinite.draft_logits": nothing,
            "nonfinite.target_logits": nothing,
        }

    def _taps(self) -> Arrays:
        count = len(BOUNDARIES)
        return {
            "taps.boundary": np.tile(BOUNDARIES, (self.batch, 1)),
            "taps.position": np.repeat(self._position - 1, count).reshape(self.batch, count),
            "taps.shape": np.tile([1, K + 1, 4096], (self.batch, count, 1)),
            "taps.dtype": (["bfloat16"] * (self.batch * count), np.full(self.batch, count)),
            "taps.rms": 1 + self._rng.random((self.batch, count), np.float32),
            "taps.nonfinite": np.zeros((self.batch, count), np.int64),
            "taps.projections": self._rng.standard_normal((self.batch, count, 32), np.float32),
        }

    def _ids(self, *shape: int) -> Array:
        found: Array = self._zipf.searchsorted(self._rng.random(shape)).clip(max=VOCAB_SIZE - 1)
        return found

    def _logprobs(self, *shape: int) -> Array:
        found: Array = -self._rng.exponential(0.7, shape).astype(np.float32)
        return found

    def _advance(self, accepted: Array) -> None:
        self._engine_step += 1
        self._step += 1
        self._position += accepted + 1
        over = np.flatnonzero(self._rng.random(self.batch) < _LAST)
        self._request[over] = self._request.max() + 1 + np.arange(len(over))
        self._step[over] = 0
        self._position[over] = self._rng.integers(20, 4000, len(over))


def records(arrays: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same steps as one plain mapping each, the shape of JSON lines and of `TraceWriter.step`."""
    rows: list[dict[str, Any]] = [{} for _ in arrays["request"]]
    for path, given in arrays.items():
        field, _, key = path.partition(".")
        for row, value in zip(rows, _by_row(given), strict=True):
            if not key:
                row[field] = value
            elif field == "nonfinite":
                row.setdefault(field, {})[key] = value
            elif field == "taps":
                _put_keys(row.setdefault(field, [{} for _ in value]), key, value)
            elif key == "id":
                row[field] = value
            else:
                row[field] = [list(map(list, zip(ids, found))) for ids, found in zip(row[field], value)]
    return rows


def _put_keys(taps: list[dict[str, Any]], key: str, values: list[Any]) -> None:
    for tap, value in zip(taps, values, strict=True):
        tap[key] = value


def _by_row(given: Any) -> list[Any]:
    """Values of one field, one per row."""
    if isinstance(given, tuple):
        flat = given[0] if isinstance(given[0], list) else given[0].tolist()
        ends = np.cumsum(given[1]).tolist()
        return [flat[end - length : end] for end, length in zip(ends, given[1].tolist())]
    return given if isinstance(given, list) else given.tolist()


def write_live(
    path: Path, num_rows: int, *, full: bool = False, engine: SyntheticEngine | None = None
) -> None:
    """A trace as a recorder leaves it: one frame for each engine step of 56 requests.

    Written by the writing thread's half alone and without waiting for a clock, so that the frames are those
    of a real engine, whose steps are longer than the flush interval.
    """
    engine = engine or SyntheticEngine(full=full)
    packer = Packer(path, {"schema": 1, "method": "eagle3", "target": {"id": "synthetic"}}, _complain)
    rows = 0
    while rows < num_rows:
        arrays = engine.engine_step()
        count = min(engine.batch, num_rows - rows)
        if count < engine.batch:
            arrays = _first_rows(arrays, count)
        packer.write([Batch(count, arrays)])
        rows += count
    packer.close()


def _first_rows(arrays: Mapping[str, Any], count: int) -> Arrays:
    found: Arrays = {}
    for path, given in arrays.items():
        if isinstance(given, tuple):
            found[path] = (given[0][: int(given[1][:count].sum())], given[1][:count])
        else:
            found[path] = given[:count]
    return found


def _complain(sentence: str) -> None:
    raise OSError(sentence)


def write_long(path: Path, num_rows: int, needle_row: int | None = None) -> None:
    """A long live trace in little time: the frames of 200 engine steps again and again.

    Frames, index and number of requests are those of `write_live`; only what the steps say repeats.

    Args:
        path: file to create.
        num_rows: steps, rounded down to whole engine steps.
        needle_row: the one step of a request called NEEDLE.
    """
    with _repeated(needle_row or 0) as trace:
        names = trace.requests.names
        steps = [_again(part, frame) for part in trace.parts for frame in part.frames() if frame.kind == STEP]
    needle = steps.pop()
    out = OutFile(path, _complain)
    head = {"spectrace": 1, "schema": 1, "run": {"method": "eagle3"}, "run_id": bytes(16), "segment": 0}
    out.write([Pending(HEAD, pack_body(head)), *(_request(*named) for named in enumerate(names))])
    declared = len(names)
    for number in range(num_rows // BATCH):
        is_needle = needle_row is not None and number == needle_row // BATCH
        pending = [needle if is_needle else steps[number % len(steps)]]
        while declared - len(names) < out.rows * _LAST:
            pending.insert(0, _request(declared, f"req-{declared:07d}"))
            declared += 1
        out.write(pending)
    out.finish({"totals": {"steps": out.rows}})


def write_json_lines(path: Path, num_rows: int, needle_row: int) -> None:
    """The steps of `write_long` for programs that read lines: LISTED_FIELDS, and the row before them."""
    with _repeated(needle_row) as trace:
        objects = [step_object(step) for step in trace.steps]
    lines = [json_line({name: found[name] for name in LISTED_FIELDS})[1:] for found in objects]
    repeated = lines[: _REPEATED * BATCH]
    with path.open("w", encoding="ascii") as file:
        for row in range(num_rows // BATCH * BATCH):
            is_needle = row // BATCH == needle_row // BATCH
            line = lines[len(repeated) + row % BATCH] if is_needle else repeated[row % len(repeated)]
            file.write(f'{{"row":{row},{line}\n')


class _NeedleEngine(SyntheticEngine):
    """Calls one request of the engine step after `_REPEATED` NEEDLE."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self._place = place

    def engine_step(self) -> Arrays:
        arrays = super().engine_step()
        if self._engine_step > _REPEATED:
            arrays["request"][self._place] = NEEDLE
        return arrays


@contextmanager
def _repeated(needle_row: int) -> Iterator[spectrace.Trace]:
    """The engine steps that a long trace repeats, and behind them the one with the needle."""
    with tempfile.TemporaryDirectory() as folder:
        short = Path(folder) / "short.spectrace"
        write_live(short, (_REPEATED + 1) * BATCH, engine=_NeedleEngine(needle_row % BATCH))
        with spectrace.open(short) as trace:
            yield trace


def _again(part: TraceFile, frame: Frame) -> Pending:
    """A STEP frame to be written once more."""
    chunk = part.chunk(frame)
    assert chunk is not None
    columns = chunk.columns(*(leaf.number for leaf in LEAVES))
    return Pending(STEP, bytes(frame.body), chunk.num_rows, count_steps(columns, chunk.num_rows))


def _request(number: int, name: str) -> Pending:
    return Pending(REQUEST, pack_body({"number": number, "request": name, "implied": True}))


def index_offset(path: Path) -> int:
    """Where the index of a closed trace begins; a killed recorder leaves what lies before it."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        end = read_frame(file.fileno(), size - HEADER_SIZE, size)
        tail = None if end is None else read_frame(file.fileno(), end.first_row, size)
        assert tail is not None, f"{path} was not closed"
        return int(unpack_body(tail.body)["index"][0])
