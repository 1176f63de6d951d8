"""Traces of strangers: whatever they hold, a comparison ends in a result and never in a traceback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spectrace
from spectrace import compare
from spectrace.cli.diff_text import text_of
from spectrace.format.fields import REQUIRED
from spectrace.format.jsonl import import_lines, json_line
from tests.strategies import requests, runs, steps

SAMPLES = Path(__file__).parents[3] / "sample_traces"
Record = dict[str, Any]
SETTINGS = settings(max_examples=25, deadline=None)


def survives(*sides: list[Record]) -> Mapping[str, Any]:
    """Compare two traces given as records, and print the comparison both ways."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{at}.spectrace" for at in range(2)]
        for path, records in zip(paths, sides):
            import_lines([json.dumps(record) for record in records], path)
        with spectrace.open(paths[0]) as a, spectrace.open(paths[1]) as b:
            found = compare(a, b)
            for line in text_of(found, a, b):
                assert "\n" not in line
                assert "\x1b" not in line
            assert json_line(found.to_mapping())
            for row in range(len(a)):
                beside = found.rows.row_of_b(row)
                assert beside is None or 0 <= beside < len(b)
            return found.to_mapping()


def records_of(name: str) -> list[Record]:
    """A sample as its JSON lines."""
    from spectrace.format.jsonl import export_lines

    with spectrace.open(SAMPLES / f"{name}.spectrace") as trace:
        return [json.loads(line) for line in export_lines(trace)]


traces = st.tuples(runs, st.lists(requests, max_size=3), st.lists(steps(), max_size=8)).map(
    lambda made: [
        {"record": "run", "schema": 1, **made[0]},
        *({"record": "request", **fields} for fields in made[1]),
        *({"record": "step", **fields} for fields in made[2]),
    ]
)


@SETTINGS
@given(traces, traces)
def test_any_two_traces_can_be_compared(one: list[Record], other: list[Record]) -> None:
    """Counts out of range, ids of 64 bits, lists of the wrong length, trees, holes, escape sequences."""
    survives(one, other)


@SETTINGS
@given(st.data())
def test_fields_may_be_missing_in_any_combination(data: st.DataObject) -> None:
    """A rich pair, each step and header of it thinned at random."""

    def thinned(records: list[Record]) -> list[Record]:
        found = []
        for record in records:
            optional = sorted(set(record) - {"record", "schema", "boundary", *REQUIRED})
            kept = data.draw(st.sets(st.sampled_from(optional))) if optional else set()
            found.append({key: value for key, value in record.items() if key not in optional or key in kept})
        return found

    one, other = RICH
    survives(thinned(one), thinned(other))


RICH = records_of("eagle3")[:24], records_of("eagle3-taps-shifted")[:24]


@pytest.mark.parametrize("other", ["eagle3-tree", "full-v1", "minimal-v1", "prompt-lookup", "killed"])
def test_every_sample_can_be_compared_with_every_kind(other: str) -> None:
    """Chains, trees, lookups, unclosed files and hand-made ones side by side, both ways."""
    one = SAMPLES / "eagle3.spectrace"
    with spectrace.open(one) as a, spectrace.open(SAMPLES / f"{other}.spectrace") as b:
        for pair in ((a, b), (b, a)):
            assert list(text_of(compare(*pair), *pair))


def test_a_damaged_file_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    """A byte flipped at many places of a file: a result, and the same steps beside each other."""
    data = (SAMPLES / "draft-greedy.spectrace").read_bytes()
    compared = 0
    with spectrace.open(SAMPLES / "draft-greedy.spectrace") as whole:
        for at in range(400, len(data), len(data) // 24):
            path = tmp_path / f"{at}.spectrace"
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
            try:
                trace = spectrace.open(path)
            except spectrace.TraceError:
                continue
            with trace:
                found = compare(whole, trace)
                assert not found.first_differences.kinds["emitted"].differing
                compared += 1
    assert compared > 10


def test_several_files_of_one_run_are_one_trace(tmp_path: Path) -> None:
    """Two ranks beside one file that holds both."""
    records = records_of("draft-greedy")
    names = sorted({r["request"] for r in records if r["record"] == "request"})
    for at, own in enumerate((names[:1], names[1:])):
        part = [r for r in records if r.get("request") is None or r["request"] in own]
        import_lines([json.dumps(r) for r in part if r["record"] != "end"], tmp_path / f"rank{at}.spectrace")
    whole = SAMPLES / "draft-greedy.spectrace"
    with spectrace.open(tmp_path) as ranks, spectrace.open(whole) as one:
        assert len(ranks) == len(one)
        found = compare(one, ranks)
        assert found.is_equal
        backwards = compare(ranks, one)
        assert backwards.is_equal
        for row, beside in enumerate(backwards.rows.b_of_a.tolist()):
            assert ranks.steps[row] == one.steps[beside]
