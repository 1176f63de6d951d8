"""A trace cut at every byte and with every byte flipped shows whole steps and says what is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import spectrace
from spectrace.errors import TraceError
from spectrace.format.records import present_fields
from spectrace.format.repair import repair
from spectrace.testing import step_fields
from tests.strategies import Fields, as_read, same

ROWS: list[Fields] = [
    step_fields(request="a", step=0, proposal_ids=[], emitted_ids=[7], flags=["prefill"]),
    step_fields(request="b", step=0, num_accepted=3, final_kind="bonus", draft_logprobs=[-0.5, -1.0, -9.0]),
    step_fields(request="a", step=1, num_accepted=1, draft_ids=[1, None, 3], taps=[
        {"boundary": 2, "shape": [1, 64], "dtype": "float32", "rms": 0.25, "projections": [0.5, 0.25]},
    ]),
    step_fields(request="b", step=1, parents=[-1, 0, 0], target_top=[[[5, -0.5]], [], [], []]),
    step_fields(request="a", step=2, stop="eos", nonfinite={"draft_logits": 1}, future={"x": 1}),
]  # fmt: skip
EXPECTED = [as_read(row) for row in ROWS]
RUN: Fields = {"method": "eagle", "target": {"id": "m"}}


@pytest.fixture(params=["closed", "unclosed", "compacted"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A trace of five steps in three frames, with every kind of record."""
    path = tmp_path / "small.spectrace"
    with spectrace.TraceWriter(path, RUN, strict=True, flush_interval=0.001) as writer:
        writer.request("a", prompt_ids=[1, 2])
        writer.tokens(target={11: "x"})
        writer.step(ROWS[0])
        assert writer.flush()
        for row in ROWS[1:4]:
            writer.step(row)
        writer.request("b", prompt_digest="d")
        writer.reference(boundary=2, rows=[{"position": 0, "rms": 1.0}])
        writer.gap(lost=2, reason="queue full")
        assert writer.flush()
        writer.amend(sampling={"temperature": 0.5})
        writer.step(ROWS[4])
        assert writer.flush()
        unclosed = path.read_bytes()
    if request.param == "unclosed":
        path.write_bytes(unclosed)
    if request.param == "compacted":
        repair(path, tmp_path / "compact.spectrace", compact=True)
        path = tmp_path / "compact.spectrace"
    return path


def read_everything(trace: spectrace.Trace) -> None:
    """Reads all a trace holds and holds it against what was written."""
    found = [trace.steps.get(i) for i in range(len(trace))]
    assert len(found) <= len(ROWS)
    for step, row in zip(found, ROWS, strict=False):
        assert step is None or (step.step, step.emitted_ids) == (row["step"], tuple(row["emitted_ids"]))
    in_order = list(trace)
    kept = iter(EXPECTED)
    assert all(any(is_true(step, expected) for expected in kept) for step in in_order)
    assert [(step.step, step.emitted_ids) for step in found if step is not None] == [
        (step.step, step.emitted_ids) for step in in_order
    ]
    assert trace.counts.steps <= len(ROWS)
    assert trace.columns("num_accepted").tolist() == [step.num_accepted for step in in_order]
    assert set(trace.requests.names) <= {"a", "b", "?0", "?1"}
    for request in trace.requests:
        assert request.prompt_ids in (None, (1, 2))
    assert trace.run.method == "eagle"
    assert [gap.lost for gap in trace.gaps] in ([], [2])
    assert [reference.boundary for reference in trace.references] in ([], [2])
    assert trace.token_text(11) in (None, "x")
    assert trace.find_rejected(0) in (None, 2, 3, 4)


def is_true(step: spectrace.Step, expected: Fields) -> bool:
    """Whether a step is the one written; the name of a request may be lost, and then says so."""
    if (step.step, step.emitted_ids) != (expected["step"], expected["emitted_ids"]):
        return False
    found = present_fields(step)
    if found["request"] in ("?0", "?1"):
        found["request"] = expected["request"]
    return same(found, expected)


def outcome(path: Path) -> tuple[str, int]:
    """What a reader says of a file, and how many steps it shows.

    Returns:
        ``closed`` (and nothing wrong), ``unclosed``, ``damaged`` (problems are named) or ``refused``.
    """
    try:
        with spectrace.open(path) as trace:
            read_everything(trace)
            assert all(sentence.isprintable() for sentence in trace.problems)
            return "damaged" if trace.problems else trace.state, len(trace)
    except TraceError as error:
        return "refused" if str(error).isprintable() else "refused in unprintable words", 0


def test_the_small_trace_is_whole(small: Path) -> None:
    """The trace that the tests below damage reads back complete, without a problem."""
    assert outcome(small) == ("unclosed" if is_unclosed(small) else "closed", len(ROWS))


def is_unclosed(path: Path) -> bool:
    """Whether the end of the file was never written."""
    return b"tend" not in path.read_bytes()


def test_a_trace_cut_at_every_byte(small: Path, tmp_path: Path) -> None:
    """Every shorter file opens with whole steps and is not called closed, or is refused by name."""
    data = small.read_bytes()
    cut = tmp_path / "cut.spectrace"
    cut.write_bytes(data)
    num_steps, num_refused = len(ROWS), 0
    for size in range(len(data) - 1, -1, -1):
        os.truncate(cut, size)
        kind, steps_shown = outcome(cut)
        assert kind != "closed"
        assert steps_shown <= num_steps, "a shorter file shows more steps"
        num_steps = steps_shown
        num_refused += kind == "refused"
    assert num_steps == 0
    assert num_refused <= data.index(b"reqs"), "only a cut within the header may be refused"


def flip(path: Path, mask_at: Callable[[int], int]) -> None:
    """Reads a file once for each of its bytes, with that byte changed."""
    data = path.read_bytes()
    num_refused = 0
    with path.open("r+b", buffering=0) as file:
        for at, byte in enumerate(data):
            os.pwrite(file.fileno(), bytes([byte ^ mask_at(at)]), at)
            kind, _ = outcome(path)
            assert kind in ("damaged", "refused"), f"byte {at} ^ {mask_at(at):#x} went unnoticed"
            num_refused += kind == "refused"
            os.pwrite(file.fileno(), bytes([byte]), at)
    assert num_refused <= data.index(b"reqs"), "only a damaged header may hide the steps"


def test_a_trace_with_every_byte_flipped(small: Path) -> None:
    """No flipped byte yields a wrong value, and none goes unnoticed."""
    flip(small, lambda at: 0xFF)


@pytest.mark.parametrize("first_bit", [0, 3])
@pytest.mark.parametrize("small", ["unclosed"], indirect=True)
def test_a_trace_with_every_byte_flipped_by_one_bit(small: Path, first_bit: int) -> None:
    """A single bit is noticed as well, whichever it is."""
    flip(small, lambda at: 1 << (at + first_bit) % 8)
