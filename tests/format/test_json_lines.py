"""JSON lines and traces say the same, both ways; a line that is wrong is named and nothing is written."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import spectrace
from spectrace.errors import ImportFailed, RecorderError
from spectrace.format.jsonl import MAX_LINE, export_lines, import_lines, json_line, read_lines
from spectrace.format.records import present_fields
from spectrace.testing import step_fields, write_trace
from tests.strategies import (
    Fields,
    json_values,
    references,
    requests,
    runs,
    same,
    steps,
    texts,
    token_tables,
)

SLOW = settings(
    max_examples=40,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
RUN = '{"record":"run","schema":1}'
STEP = json_line({"record": "step", **step_fields()})

records = st.one_of(
    steps().map(lambda fields: ("step", (fields,), {})),
    requests.map(
        lambda fields: ("request", (fields["request"],), {k: v for k, v in fields.items() if k != "request"})
    ),
    runs.map(lambda fields: ("amend", (), fields)),
    token_tables.map(lambda fields: ("tokens", (), fields)),
    references.map(lambda fields: ("reference", (), fields)),
    st.integers(0, 9).map(lambda lost: ("gap", (), {"lost": lost, "reason": "queue full"})),
)


def lines_of(path: Path) -> list[str]:
    """The export of a trace."""
    with spectrace.open(path) as trace:
        return list(export_lines(trace))


# --- there and back ----------------------------------------------------------------------------


@SLOW
@given(runs, st.lists(records, max_size=8), st.booleans(), st.booleans())
def test_export_import_export_is_the_same(
    run: Fields, calls: list[tuple[str, tuple[Any, ...], Fields]], is_flushed: bool, is_closed: bool
) -> None:
    """Any records, in any order, closed or not: the second export has the same lines, the steps are equal."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "a.spectrace", Path(folder) / "b.spectrace"
        with spectrace.TraceWriter(first, run, strict=True, flush_interval=0.0005) as writer:
            for method, args, keywords in calls:
                getattr(writer, method)(*args, **keywords)
                if is_flushed:
                    assert writer.flush()
            assert writer.flush()
            unclosed = first.read_bytes()
        if not is_closed:
            first.write_bytes(unclosed)
        lines = lines_of(first)
        assert import_lines([line.encode() for line in lines], second) == sum(
            m == "step" for m, _, _ in calls
        )
        assert lines_of(second) == lines
        with spectrace.open(first) as before, spectrace.open(second) as after:
            assert after.state == ("closed" if is_closed else "unclosed")
            assert after.counts == before.counts
            assert after.requests.names == before.requests.names
            for one, other in zip(before, after, strict=True):
                assert same(_without_extra(present_fields(one)), _without_extra(present_fields(other)))
            assert after.problems == []


def _without_extra(fields: Fields) -> Fields:
    """Fields but for unknown keys: a number that JSON lacks is a text there, which the lines compare."""
    found = {key: value for key, value in fields.items() if key != "extra"}
    for name, known in (
        ("nonfinite", ("draft_logits", "target_logits")),
        ("draft_inputs", ("rms", "token_position")),
    ):
        if name in found:
            items = found[name] if isinstance(found[name], tuple) else (found[name],)
            found[name] = [{key: item.get(key) for key in known} for item in items]
    if "taps" in found:
        found["taps"] = [{key: tap[key] for key in ("shape", "dtype")} for tap in found["taps"]]
    return found


def test_every_line_is_json_in_ascii(tmp_path: Path) -> None:
    """Lines are JSON without NaN, in ASCII, one record each; the first is the run and the last the end."""
    nan = float("nan")
    write_trace(
        tmp_path / "t.spectrace",
        [step_fields(draft_logprobs=[nan, float("-inf"), 1.5], stop="\x1b\n名")],
        run={"x": nan},
    )
    lines = lines_of(tmp_path / "t.spectrace")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    found = [json.loads(line, parse_constant=refuse) for line in lines]
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert [record["record"] for record in found] == ["run", "step", "end"]
    assert found[0]["x"] == "NaN"
    assert found[1]["draft_logprobs"] == ["NaN", "-Infinity", 1.5]
    assert found[1]["stop"] == "\x1b\n名"


def test_unknown_keys_come_back_and_never_replace_known_ones(tmp_path: Path) -> None:
    """An engine's own keys stand beside the fields, also within taps; none can pose as a field."""
    step = {
        **step_fields(),
        "engine_note": {"a": [1, None]},
        "taps": [{"shape": [1], "dtype": "f", "mine": 2}],
    }
    write_trace(tmp_path / "t.spectrace", [step])
    found = json.loads(lines_of(tmp_path / "t.spectrace")[1])
    assert found["engine_note"] == {"a": [1, None]}
    assert found["taps"] == [{"shape": [1], "dtype": "f", "mine": 2}]
    write_trace(tmp_path / "evil.spectrace", [step_fields(extra='{"record":"run","step":7,"note":1}')])
    found = json.loads(lines_of(tmp_path / "evil.spectrace")[1])
    assert (found["record"], found["step"], found["note"]) == ("step", 0, 1)


def test_export_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lines of a long trace come before the rest is read."""
    path = write_trace(
        tmp_path / "t.spectrace", (step_fields(step=n, draft_logprobs=[n / 7] * 3) for n in range(30_000))
    )
    real, read = os.pread, [0]

    def counted(fd: int, size: int, offset: int) -> bytes:
        read[0] += size
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    with spectrace.open(path) as trace:
        lines = export_lines(trace)
        for _ in range(5):
            next(lines)
        assert read[0] < 400_000 < path.stat().st_size
        assert sum(1 for _ in lines) == 30_000 + 2 - 5


def test_import_streams(tmp_path: Path) -> None:
    """Lines are taken one by one, and progress is told on the way."""
    told: list[int] = []
    taken = 0

    def lines() -> Iterator[bytes]:
        nonlocal taken
        yield RUN.encode()
        for _ in range(5000):
            taken += 1
            yield STEP.encode() + b"\n"

    def progress(done: int) -> None:
        told.append(taken)

    assert import_lines(lines(), tmp_path / "t.spectrace", on_progress=progress) == 5000
    assert told[0] < 5000
    assert told == sorted(told)


def test_several_segments_export_as_one_run(tmp_path: Path) -> None:
    """A flight recorder's two segments make one run record, and its loss is told once."""
    path = tmp_path / "t.spectrace"
    with spectrace.TraceWriter(path, {"method": "eagle"}, strict=True, max_bytes=200_000) as writer:
        writer.amend(reported={"x": 1})
        for number in range(9000):
            writer.step(step_fields(step=number, draft_logprobs=[number / 7] * 3))
    lines = lines_of(path)
    assert sum('"reason":"rotated"' in line for line in lines) == 1
    assert import_lines(lines, tmp_path / "one.spectrace") > 1000
    with spectrace.open(path) as trace, spectrace.open(tmp_path / "one.spectrace") as one:
        assert one.run_mapping == trace.run_mapping
        assert one.gaps == trace.gaps
        assert one.columns("step").tolist() == trace.columns("step").tolist()
        assert one.requests.names == trace.requests.names


# --- what is refused ---------------------------------------------------------------------------

BAD: dict[str, tuple[list[Any], int, str]] = {
    "nothing": ([], 0, "no run record"),
    "only blank lines": (["", "  "], 2, "no run record"),
    "no JSON": ([RUN, "{"], 2, "not JSON"),
    "no UTF-8": ([RUN, b"\xff"], 2, "not JSON"),
    "a list": ([RUN, "[1]"], 2, "not a JSON object"),
    "deep": ([RUN, '{"a":' * 100_000], 2, "nested too deeply"),
    "deep unknown keys": (
        [RUN, STEP[:-1] + ',"x":' + "[" * 500 + "]" * 500 + "}"],
        2,
        "nested at most 100 deep",
    ),
    "a deep run": ([RUN[:-1] + ',"x":' + "[" * 500 + "]" * 500 + "}"], 1, "nested deeper than 100"),
    "a huge number": ([RUN, '{"record":"step","step":' + "9" * 5000 + "}"], 2, "not JSON"),
    "a step first": ([STEP], 1, "first record must be a run"),
    "no record": ([RUN, "{}"], 2, "field record"),
    "an unknown record": ([RUN, '{"record":"stap"}'], 2, '"stap" is no kind of record'),
    "two runs": ([RUN, RUN], 2, "field record"),
    "no schema": (['{"record":"run"}'], 1, "field schema"),
    "newer schema": (['{"record":"run","schema":2}'], 1, "newer"),
    "wrong type in the run": (
        ['{"record":"run","schema":1,"target":{"vocab_size":"x"}}'],
        1,
        "target.vocab_size",
    ),
    "run too large": (['{"record":"run","schema":1,"x":"' + "y" * (5 << 20) + '"}'], 1, "run"),
    "number too large in the run": (['{"record":"run","schema":1,"x":99999999999999999999}'], 1, "run"),
    "missing field": ([RUN, STEP, STEP.replace('"position":1,', "")], 3, "position"),
    "null field": ([RUN, STEP.replace('"position":1', '"position":null')], 2, "position"),
    "text for a number": (
        [RUN, STEP, "", STEP.replace('"step":0', '"step":"0"')],
        4,
        "step must be an integer",
    ),
    "number with a fraction": ([RUN, STEP.replace('"step":0', '"step":0.5')], 2, "step must be an integer"),
    "true for a number": ([RUN, STEP.replace('"step":0', '"step":true')], 2, "step must be an integer"),
    "number for a list": ([RUN, STEP.replace("[11,12,13]", "11")], 2, "proposal_ids"),
    "text in a list": ([RUN, STEP.replace("[11,12,13]", '[11,"12",13]')], 2, "proposal_ids"),
    "null in a required list": ([RUN, STEP.replace("[11,12,13]", "[11,null,13]")], 2, "proposal_ids"),
    "number too large": ([RUN, STEP.replace('"step":0', '"step":99999999999999999999')], 2, "step"),
    "number for a name": ([RUN, STEP.replace('"r0"', "7")], 2, "request"),
    "no pairs": ([RUN, STEP[:-1] + ',"draft_top":[[5]]}'], 2, "draft_top"),
    "a tap without shape": ([RUN, STEP[:-1] + ',"taps":[{"dtype":"f"}]}'], 2, "taps"),
    "a tap that is none": ([RUN, STEP[:-1] + ',"taps":[5]}'], 2, "taps"),
    "a request without a name": ([RUN, '{"record":"request"}'], 2, "request must be text"),
    "wrong prompt": ([RUN, '{"record":"request","request":"a","prompt_ids":["x"]}'], 2, "prompt_ids"),
    "token ids that are none": ([RUN, '{"record":"tokens","target":{"x":"y"}}'], 2, "target"),
    "token texts that are none": ([RUN, '{"record":"tokens","draft":{"1":5}}'], 2, "draft"),
    "tokens of elsewhere": ([RUN, '{"record":"tokens","other":{}}'], 2, "other"),
    "a reference without boundary": ([RUN, '{"record":"reference","rows":[]}'], 2, "boundary"),
    "a reference of a request without a name": (
        [RUN, '{"record":"reference","boundary":1,"request":5}'],
        2,
        "request",
    ),
    "reference rows that are none": ([RUN, '{"record":"reference","boundary":1,"rows":[5]}'], 2, "rows"),
    "a gap without a number": ([RUN, '{"record":"gap","reason":"x"}'], 2, "lost"),
    "a negative gap": ([RUN, '{"record":"gap","lost":-1,"reason":"x"}'], 2, "lost"),
    "wrong type in an amendment": ([RUN, '{"record":"amend","method":5}'], 2, "method"),
    "a step behind the end": ([RUN, '{"record":"end"}', STEP], 3, "behind the end"),
    "an end that cannot be stored": ([RUN, '{"record":"end","x":99999999999999999999}'], 2, "end"),
    "a name that is too long": ([RUN, '{"record":"request","request":"' + "x" * 70_000 + '"}'], 2, "request"),
    "a step that is too large": (
        [RUN, STEP, STEP[:-1] + ',"mask":[' + ",".join(['"on"'] * 1_100_000) + "]}"],
        2,
        "too large",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_line_is_named_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    """The message says line and field in printable characters, and no file is left behind."""
    lines, number, what = BAD[name]
    with pytest.raises(ImportFailed) as failure:
        import_lines(lines, tmp_path / "t.spectrace", source="a.jsonl")
    assert failure.value.line == number
    assert what in str(failure.value)
    assert str(failure.value).isprintable()
    assert str(failure.value).endswith("nothing was written")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=150)
@given(
    st.sampled_from(["run", "step", "request", "tokens", "reference", "gap", "amend", "end"]),
    st.dictionaries(
        st.sampled_from(["request", "taps", "draft_top", "extra", "rows", "target", "lost", "stop", "record"])
        | texts,
        json_values,
        max_size=3,
    ),
)
def test_any_json_is_taken_or_refused(kind: str, keys: Fields) -> None:
    """Whatever a line holds, it is imported and can be exported, or refused by line."""
    base = {"step": step_fields(), "request": {"request": "a"}, "reference": {"boundary": 1}}.get(kind, {})
    if kind == "gap":
        base = {"lost": 1, "reason": "x"}
    lines = [RUN, json.dumps({**base, "record": kind, **keys}), STEP]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "t.spectrace"
        refused_line = None
        try:
            import_lines(lines, out)
        except ImportFailed as failure:
            refused_line = failure.line
        if refused_line is not None:
            assert refused_line in (2, 3)
            assert list(Path(folder).iterdir()) == []
            return
        exported = lines_of(out)
        import_lines(exported, Path(folder) / "u.spectrace")
        assert lines_of(Path(folder) / "u.spectrace") == exported


@pytest.mark.parametrize(
    "convert",
    [
        lambda lines: lines,
        lambda lines: [line + "\r\n" for line in lines],
        lambda lines: [b"\xef\xbb\xbf" + lines[0].encode(), *(line.encode() for line in lines[1:])],
        lambda lines: ["", *lines, "   "],
        lambda lines: read_lines(io.BytesIO("\n".join(lines).encode())),
    ],
    ids=["text", "CRLF", "byte order mark", "blank lines", "stream"],
)
def test_lines_of_any_editor_are_read(tmp_path: Path, convert: Callable[[list[str]], Any]) -> None:
    """Line ends, blank lines, a byte order mark and a missing last newline do not matter."""
    assert import_lines(convert([RUN, STEP, STEP]), tmp_path / "t.spectrace") == 2


def test_an_endless_line_is_refused(tmp_path: Path) -> None:
    """A line that does not end is refused before it fills the memory."""

    class Endless(io.RawIOBase):
        """A stream without a newline, that counts what was taken."""

        taken = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None
            assert 0 < size <= MAX_LINE + 1
            self.taken += size
            return b" " * size

    stream = Endless()
    with pytest.raises(ImportFailed, match="line 1: longer than"):
        import_lines(read_lines(stream, "-"), tmp_path / "t.spectrace")  # type: ignore[arg-type]
    assert stream.taken <= MAX_LINE + 1


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    """Import never overwrites."""
    out = tmp_path / "t.spectrace"
    out.write_text("precious")
    with pytest.raises(RecorderError, match="exists already"):
        import_lines([RUN], out)
    assert out.read_text() == "precious"


def test_an_interrupted_import_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in the middle removes the half-written file."""

    def lines() -> Iterator[str]:
        yield RUN
        yield STEP
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_lines(lines(), tmp_path / "t.spectrace")
    assert list(tmp_path.iterdir()) == []
