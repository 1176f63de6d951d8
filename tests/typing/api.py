"""How the public names are used, for mypy alone: nothing here is run.

A change that breaks a caller's types breaks `make types` in this file. Whatever lost its type would
be `Any`, which `assert_type` does not accept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spectrace
from spectrace import Counts, Request, Run, Step, Tap, Trace, TraceError, TraceWriter
from spectrace.testing import FakeClock, make_step, write_trace

if TYPE_CHECKING:
    from typing_extensions import assert_type


def record(path: Path) -> None:
    """A loop of one's own writes a trace."""
    with TraceWriter(path, Run(method="draft_model")) as writer:
        assert_type(writer, TraceWriter)
        writer.request("r0", prompt_ids=[1, 2, 3])
        writer.step(
            request="r0",
            step=0,
            position=3,
            proposal_ids=[5, 6],
            num_accepted=1,
            emitted_ids=[5, 9],
        )
        writer.amend(engine={"name": "mine"})


def read(path: str | Path) -> int:
    """A script asks a trace."""
    with spectrace.open(path) as trace:
        assert_type(trace, Trace)
        assert_type(trace.run, Run)
        assert_type(trace.run.method, str | None)
        assert_type(trace.counts, Counts)
        assert_type(trace.problems, list[str])
        assert_type(trace.token_text(5), str | None)
        assert_type(trace.state, str)
        return sum(step.num_accepted for step in trace)


def read_several(paths: Sequence[Path]) -> Trace:
    """The ranks of one run open as one trace."""
    return spectrace.open(paths)


def look_at(step: Step) -> None:
    """The fields that every step has are never None; the others may be."""
    assert_type(step.request, str)
    assert_type(step.num_accepted, int)
    assert_type(step.proposal_ids, tuple[int | None, ...])
    assert_type(step.emitted_ids, tuple[int | None, ...])
    assert_type(step.taps, tuple[Tap, ...] | None)


def catch(path: Path) -> str:
    """What is wrong with a file is one sentence."""
    try:
        spectrace.open(path).close()
    except TraceError as error:
        return str(error)
    return ""


def ask_a_request(request: Request) -> Sequence[int] | None:
    """A request knows its prompt where text was captured."""
    return request.prompt_ids


def test_somebody_elses_code(path: Path, fields: Mapping[str, Any]) -> None:
    """The testing module makes steps, traces and time."""
    assert_type(make_step(proposal_ids=[5, 6], num_accepted=1), Step)
    assert_type(write_trace(path, [fields]), Path)
    assert_type(FakeClock(7)(), int)
