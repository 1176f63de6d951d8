"""What `TraceWriter` is given is what `spectrace.open` hands out, for every record."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import spectrace
from spectrace.format.fields import FIELD_BY_NAME, LEAVES
from spectrace.format.headers import deep_merge
from spectrace.format.records import present_fields
from spectrace.testing import step_fields, write_trace
from tests.strategies import (
    Fields,
    as_read,
    references,
    requests,
    runs,
    same,
    steps,
    token_tables,
)

SLOW = settings(
    max_examples=50,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@contextmanager
def written(rows: Sequence[Fields] = (), *, flush_every: int = 0, **calls: Any) -> Iterator[spectrace.Trace]:
    """A trace of rows, written and opened; every ``flush_every`` rows begin a new frame.

    ``calls`` are made before the rows: name of a writer's method -> arguments of each call.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.spectrace"
        run = calls.pop("run", {})
        with spectrace.TraceWriter(path, run, strict=True, flush_interval=0.0005) as writer:
            for method, given_calls in calls.items():
                for args, keywords in given_calls:
                    getattr(writer, method)(*args, **keywords)
            for at, row in enumerate(rows):
                if flush_every and at % flush_every == 0:
                    assert writer.flush()
                writer.step(row)
        with spectrace.open(path) as trace:
            yield trace
            assert trace.problems == []
            assert trace.state == "closed"


# --- steps -------------------------------------------------------------------------------------


@SLOW
@given(st.lists(steps(), max_size=4), st.integers(0, 2))
def test_steps_are_read_as_written(rows: list[Fields], flush_every: int) -> None:
    """Any steps, in one frame or several, are read with the same values, types and order."""
    with written(rows, flush_every=flush_every) as trace:
        found = [present_fields(step) for step in trace]
        by_number = [present_fields(trace.steps[i]) for i in range(len(trace))]
    for have, row in zip(found, rows, strict=True):
        assert same(have, as_read(row)), (have, as_read(row))
    assert same(by_number, found)


@SLOW
@given(st.lists(steps(), max_size=5), st.integers(0, 2), st.data())
def test_indices_and_slices_are_those_of_a_list(
    rows: list[Fields], flush_every: int, data: st.DataObject
) -> None:
    """``steps`` answers any index, negative ones included, and any slice as a list would."""
    bound = st.none() | st.integers(-7, 7)
    part = slice(data.draw(bound), data.draw(bound), data.draw(bound.filter(lambda n: n != 0)))
    expected = [as_read(row) for row in rows]
    with written(rows, flush_every=flush_every) as trace:
        assert len(trace.steps) == len(rows)
        assert same([present_fields(step) for step in trace.steps[part]], expected[part])
        for index in range(-len(rows), len(rows)):
            assert same(present_fields(trace.steps[index]), expected[index])
        for index in (len(rows), -len(rows) - 1):
            try:
                trace.steps[index]
            except IndexError:
                continue
            raise AssertionError(f"step {index} of {len(rows)}")


@SLOW
@given(st.lists(steps(), min_size=1, max_size=4), st.integers(0, 2))
def test_columns_say_what_steps_say(rows: list[Fields], flush_every: int) -> None:
    """A column holds the values of the steps, masked where a row or an element has none."""
    with written(rows, flush_every=flush_every) as trace:
        every = list(trace)
        for leaf in (leaf for leaf in LEAVES if leaf.key != "extra"):
            column = trace.columns(leaf.path)
            expected = [_leaf_of(step, leaf.path) for step in every]
            found = _column_rows(column, leaf.depth)
            if leaf.key != FIELD_BY_NAME[leaf.field].carrier:
                # A key that no object of a frame has is no column there.
                found, expected = (
                    [row if _is_there(row) else None for row in rows] for rows in (found, expected)
                )
            assert same(found, expected), leaf.path


def _is_there(row: Any) -> bool:
    return any(item not in (None, (), []) for item in row) if isinstance(row, list) else row is not None


def _leaf_of(step: spectrace.Step, path: str) -> Any:
    """The value of one column in a step; None where the row lacks the field."""
    name, _, key = path.partition(".")
    value = getattr(step, name)
    shape = FIELD_BY_NAME[name].shape
    if value is None or shape in ("scalar", "list"):
        return value
    if shape == "pairs":
        return [[pair[int(key == "logprob")] for pair in node] for node in value]
    missing = () if key == "projections" else None
    return value.get(key) if shape == "struct" else [item.get(key, missing) for item in value]


def _column_rows(column: Any, depth: int) -> list[Any]:
    """A column as one value or list per row."""
    if depth == 0:
        return list(column.tolist())
    found: list[Any] = []
    values = column.values.tolist()
    inner = column.inner
    for row, there in enumerate(column.present.tolist()):
        start, stop = int(column.offsets[row]), int(column.offsets[row + 1])
        if not there:
            found.append(None)
        elif inner is None:
            found.append(values[start:stop])
            assert len(column[row]) == stop - start
        else:
            ends = inner.tolist()
            found.append([values[ends[i] : ends[i + 1]] for i in range(start, stop)])
            assert len(column[row]) == ends[stop] - ends[start]
    return found


def test_columns_of_integers_stay_integers() -> None:
    """Frames with small, negative and 63-bit values join into exact integers, never into floats."""
    big = 2**63 - 1
    rows = [step_fields(started_ns=value, draft_positions=[value]) for value in (big, -1, 3, 2**53 + 1)]
    with written(rows, flush_every=1) as trace:
        assert trace.columns("started_ns").dtype.kind == "i"
        assert trace.columns("started_ns").tolist() == [big, -1, 3, 2**53 + 1]
        assert trace.columns("draft_positions").values.tolist() == [big, -1, 3, 2**53 + 1]


def test_several_columns_come_as_a_dict() -> None:
    """``columns`` with several names answers for each of them; an unknown name is a KeyError."""
    with written([step_fields(num_accepted=n) for n in range(3)]) as trace:
        both = trace.columns("num_accepted", "position")
        assert list(both) == ["num_accepted", "position"]
        assert both["num_accepted"].tolist() == [0, 1, 2]
        try:
            trace.columns("nonsense")
        except KeyError:
            return
    raise AssertionError("an unknown column was answered")


# --- batches -----------------------------------------------------------------------------------


def _uniform(num_rows: int, size: int, seed: int) -> Fields:
    """Arrays of an engine step in which every request proposes the same number of tokens."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, 151_936, (num_rows, size))
    return {
        "request": [f"r{row % 3}" for row in range(num_rows)],
        "step": np.arange(num_rows, dtype=np.int32),
        "position": random.integers(0, 4096, num_rows),
        "proposal_ids": ids,
        "draft_ids": ids.astype(np.uint32),
        "num_accepted": random.integers(0, size + 1, num_rows).astype(np.uint8),
        "emitted_ids": random.integers(0, 151_936, (num_rows, size + 1)).astype(np.int32),
        "draft_logprobs": random.normal(size=(num_rows, size)).astype(np.float32),
        "draft_entropy": random.normal(size=(num_rows, size)).astype(np.float16),
        "target_gaps": random.normal(size=(num_rows, size + 1)),
        "draft_top.id": random.integers(0, 9, (num_rows, size, 2)),
        "draft_top.logprob": random.normal(size=(num_rows, size, 2)).astype(np.float32),
        "taps.dtype": [["bfloat16"] * 2] * num_rows,
        "taps.boundary": np.tile(np.array([2, 18]), (num_rows, 1)),
        "taps.shape": np.full((num_rows, 2, 2), 4096),
        "taps.rms": random.normal(size=(num_rows, 2)),
        "taps.projections": random.normal(size=(num_rows, 2, 32)).astype(np.float32),
        "logits_kind": ["raw"] * num_rows,
        "draft_ns": random.integers(0, 10**9, num_rows),
        "nonfinite.draft_logits": random.integers(0, 2, num_rows),
    }


def _ragged(num_rows: int, seed: int) -> Fields:
    """Arrays of an engine step in which requests propose different numbers of tokens."""
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 5, num_rows)
    total, slots = int(sizes.sum()), int((sizes + 1).sum())
    return {
        "request": [f"q{row}" for row in range(num_rows)],
        "step": np.zeros(num_rows, np.int64),
        "position": random.integers(0, 4096, num_rows),
        "proposal_ids": (random.integers(0, 300, total), sizes),
        "num_accepted": np.zeros(num_rows, np.int64),
        "emitted_ids": (random.integers(0, 300, slots), sizes + 1),
        "target_logprobs": (random.normal(size=total), sizes),
        "target_top.id": (random.integers(0, 300, (slots, 3)), sizes + 1),
        "target_top.logprob": (random.normal(size=(slots, 3)), sizes + 1),
        "flags": (["prefill"] * total, sizes),
    }


def _rows_of(num_rows: int, arrays: Fields) -> list[Fields]:
    """The same steps as one mapping each."""
    listed = {name: _listed(value) for name, value in arrays.items()}
    return [_row_of({name: values[row] for name, values in listed.items()}) for row in range(num_rows)]


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, tuple):
        return value.tolist() if isinstance(value, np.ndarray) else list(value)
    flat, lengths = value
    flat = _listed(flat)
    ends = np.cumsum(lengths).tolist()
    return [flat[end - size : end] for end, size in zip(ends, lengths.tolist(), strict=True)]


def _row_of(leaves: Fields) -> Fields:
    row: Fields = {}
    for path, value in leaves.items():
        name, _, key = path.partition(".")
        shape = FIELD_BY_NAME[name].shape
        if shape in ("scalar", "list"):
            row[name] = value
        elif shape == "struct":
            row.setdefault(name, {})[key] = value
        elif shape == "structs":
            objects = row.setdefault(name, [{} for _ in value])
            for item, part in zip(objects, value, strict=True):
                item[key] = part
        elif key == "id":
            row[name] = [
                [list(pair) for pair in zip(ids, logprobs, strict=True)]
                for ids, logprobs in zip(value, leaves[f"{name}.logprob"], strict=True)
            ]
    return row


@SLOW
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 5), st.integers(0, 4), st.integers(0, 99)), max_size=4),
    st.booleans(),
)
def test_a_batch_reads_as_the_same_steps_one_by_one(
    batches: list[tuple[bool, int, int, int]], is_flushed: bool
) -> None:
    """``steps(num_rows, arrays)``, uniform or ragged, in one frame or several, equals ``step`` row by row."""
    given_arrays = [
        (rows, _ragged(rows, seed) if is_ragged else _uniform(rows, size, seed))
        for is_ragged, rows, size, seed in batches
    ]
    rows = [row for num_rows, arrays in given_arrays for row in _rows_of(num_rows, arrays)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batch.spectrace"
        with spectrace.TraceWriter(path, {}, strict=True) as writer:
            for num_rows, arrays in given_arrays:
                writer.steps(num_rows, arrays)
                if is_flushed:
                    assert writer.flush()
        with spectrace.open(path) as trace:
            found = [present_fields(step) for step in trace]
            assert trace.problems == []
    for have, row in zip(found, rows, strict=True):
        assert same(have, as_read(row)), (have, as_read(row))


def test_a_batch_is_copied(tmp_path: Path) -> None:
    """An engine may overwrite its buffers as soon as ``steps`` has returned."""
    arrays = _uniform(4, 3, 0)
    expected = [as_read(row) for row in _rows_of(4, arrays)]
    with spectrace.TraceWriter(tmp_path / "t.spectrace", {}, strict=True, flush_interval=0.05) as writer:
        writer.steps(4, arrays)
        for value in arrays.values():
            if isinstance(value, np.ndarray):
                value.fill(7)
            else:
                value.clear()
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        assert same([present_fields(step) for step in trace], expected)


def test_a_deferred_step_is_called_on_the_writing_thread(tmp_path: Path) -> None:
    """A function given to ``step`` is called later; what it returns is recorded, None is not."""
    with spectrace.TraceWriter(tmp_path / "t.spectrace", {}, strict=True) as writer:
        writer.step(lambda: step_fields(step=0))
        writer.step(lambda: None)
        writer.step(lambda: step_fields(step=1))
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        assert [step.step for step in trace] == [0, 1]
        assert trace.gaps == []


def test_deferred_steps_may_be_several_groups(tmp_path: Path) -> None:
    """A function given to ``steps`` returns steps, groups of them or nothing; a bad group costs itself."""
    first, second = _uniform(2, 3, 0), _uniform(3, 2, 0)
    bad = {**first, "num_accepted": np.zeros(3, np.int64)}
    with spectrace.TraceWriter(tmp_path / "t.spectrace", {}) as writer:
        writer.steps(2, lambda: (2, first))
        writer.steps(0, lambda: [(2, first), (2, bad), (3, second)])
        writer.steps(0, list)
        writer.steps(0, lambda: None)
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        expected = [*_rows_of(2, first), *_rows_of(2, first), *_rows_of(3, second)]
        assert same([present_fields(step) for step in trace], [as_read(row) for row in expected])
        assert [(gap.lost, gap.reason) for gap in trace.gaps] == [(2, "malformed")]


def test_an_index_and_the_steps_themselves_count_alike(tmp_path: Path) -> None:
    """What an index sums is summed from the steps of a trace that has none."""
    tallied = {"num_accepted_reported": 2, "final_kind": "corrected", "stop": "eos", "draft_ns": 5}
    path = tmp_path / "t.spectrace"
    with spectrace.TraceWriter(path, {}, strict=True) as writer:
        writer.step(step_fields(step=0))
        writer.step(step_fields(step=1, proposal_ids=[1, 2], emitted_ids=[1, 3], num_accepted=1, **tallied))
        assert writer.flush()
        (tmp_path / "unclosed.spectrace").write_bytes(path.read_bytes())
    with spectrace.open(path) as closed, spectrace.open(tmp_path / "unclosed.spectrace") as unclosed:
        assert unclosed.state == "unclosed"
        assert unclosed.counts == closed.counts
        assert (closed.counts.steps_reported, closed.counts.accepted_reported) == (1, 2)


# --- other records -----------------------------------------------------------------------------


@SLOW
@given(runs, st.lists(runs, max_size=3))
def test_the_header_is_read_with_its_amendments(run: Fields, amendments: list[Fields]) -> None:
    """The run mapping is the header given, every amendment merged over it, in order."""
    expected = {"schema": 1, **run}
    for fields in amendments:
        expected = deep_merge(expected, fields)
    with written(run=run, amend=[((), fields) for fields in amendments]) as trace:
        found = dict(trace.run_mapping)
        if run.get("created") is None:
            found.pop("created", None)
            expected.pop("created", None)
        assert same(found, expected)
        engine = trace.run.engine
        assert (engine and engine.name) == (expected.get("engine") or {}).get("name")


@SLOW
@given(st.lists(requests, max_size=5), st.lists(steps(), max_size=2))
def test_requests_are_read_in_the_order_they_were_named(
    given_requests: list[Fields], rows: list[Fields]
) -> None:
    """Each request is listed once, by first mention, with what was last said of it."""
    expected: dict[str, Fields] = {}
    for request in given_requests:
        expected[request["request"]] = {**expected.get(request["request"], {}), **request}
    for row in rows:
        expected.setdefault(row["request"], {"request": row["request"]})
    calls = [
        ((request["request"],), {k: v for k, v in request.items() if k != "request"})
        for request in given_requests
    ]
    with written(rows, request=calls) as trace:
        assert trace.requests.names == list(expected)
        assert [request.request for request in trace.requests] == list(expected)
        for name, fields in expected.items():
            found = trace.requests.get(name)
            assert found is not None
            assert same(found.prompt_ids, fields.get("prompt_ids"))
            assert found.prompt_digest == fields.get("prompt_digest")
            assert found.external_id == fields.get("external_id")
            assert same(found.segment_map, fields.get("segment_map"))
        assert trace.requests.get("nobody") is None


@SLOW
@given(st.lists(token_tables, max_size=3))
def test_token_texts_are_read_by_id(tables: list[Fields]) -> None:
    """The last text given for an id is its text; an id without one has none."""
    target: dict[int, str] = {}
    draft: dict[int, str] = {}
    for table in tables:
        target.update(table.get("target", {}))
        draft.update(table.get("draft", {}))
    with written(tokens=[((), table) for table in tables]) as trace:
        assert {key: trace.token_text(key) for key in target} == target
        assert {key: trace.token_text(key, draft=True) for key in draft} == draft
        assert trace.token_text(-1) is None


@SLOW
@given(st.lists(references, max_size=3))
def test_references_are_read_in_order(given_references: list[Fields]) -> None:
    """Every reference forward's rows come back, numbers exact."""
    with written(reference=[((), fields) for fields in given_references]) as trace:
        found = [
            {
                **({} if reference.request is None else {"request": reference.request}),
                "boundary": reference.boundary,
                "rows": [
                    {
                        key: value
                        for key in ("position", "rms", "projections")
                        if (value := getattr(row, key)) is not None
                    }
                    for row in reference.rows
                ],
            }
            for reference in trace.references
        ]
        assert same(found, given_references)


def test_gaps_and_the_end_record_are_read(tmp_path: Path) -> None:
    """A declared gap and the end record's own fields come back."""
    writer = spectrace.TraceWriter(tmp_path / "t.spectrace", {}, strict=True)
    writer.step(step_fields(num_accepted=2))
    writer.gap(lost=7, reason="queue full")
    writer.close()
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        assert [(gap.lost, gap.reason) for gap in trace.gaps] == [(7, "queue full")]
        assert trace.end == {
            "totals": {"steps": 1, "draft_tokens": 3, "accepted_tokens": 2, "emitted_tokens": 3}
        }


def test_token_texts_are_asked_for_once_per_id(tmp_path: Path) -> None:
    """``token_text`` is called for every id that occurs first, and its answers are in the trace."""
    asked: list[tuple[str, int]] = []

    def text(space: str, token: int) -> str | None:
        asked.append((space, token))
        return None if token == 99 else f"{space}{token}"

    steps_given = [
        step_fields(draft_ids=[5, None, 6]),
        step_fields(draft_ids=[6, 7, 8], target_ids=[1, 2, 3, 4]),
    ]
    write_trace(tmp_path / "t.spectrace", steps_given, token_text=text)
    assert len(asked) == len(set(asked))
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        assert [trace.token_text(token) for token in (11, 4, 99)] == ["target11", "target4", None]
        assert trace.token_text(8, draft=True) == "draft8"


def test_an_empty_trace_is_a_trace(tmp_path: Path) -> None:
    """A run that recorded nothing opens, closed, with no step, request or problem."""
    write_trace(tmp_path / "t.spectrace")
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        assert (len(trace), len(trace.requests), list(trace), trace.problems) == (0, 0, [], [])
        assert trace.counts == spectrace.Counts()
        assert trace.columns("num_accepted").tolist() == []
        assert len(trace.columns("taps.projections")) == 0
        assert trace.find_rejected(0) is None


def test_not_a_number_survives(tmp_path: Path) -> None:
    """NaN and infinities are values like others, in double and in single precision."""
    nasty = [math.nan, math.inf, -math.inf, 1e300, -0.0]
    write_trace(tmp_path / "t.spectrace", [step_fields(draft_logprobs=nasty, target_gaps=nasty[:3])])
    with spectrace.open(tmp_path / "t.spectrace") as trace:
        assert same(trace.steps[0].draft_logprobs, nasty)
        assert same(trace.steps[0].target_gaps, nasty[:3])
