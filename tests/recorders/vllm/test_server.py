"""The recorder under vLLM's API server: front end, engine core and worker in processes of their own.

Three servers and a script: four minutes on two cores that do little else, most of them to start processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.analysis.diagnosis.examine import diagnose
from tests.recorders.serving_runs import run_child
from tests.recorders.serving_traces import trace_of
from tests.recorders.triton_interpreter import ENVIRONMENT
from tests.recorders.vllm.conftest import CHILD
from tests.recorders.vllm.invariants import check_emitted, check_reported, check_steps
from tests.recorders.vllm.scenarios import K
from tests.recorders.vllm.server import ROOT, Server
from tests.recorders.vllm.traffic import Answer, Listener, ask_all, ask_until_idle

pytestmark = pytest.mark.engine

_TOO_SMALL = "workload/too-small"
_PATHS = (Path(__file__).parent / "interpreted", ROOT, ROOT / "recorders")
_INTERPRETED = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(map(str, _PATHS))}


@dataclass(frozen=True)
class Recorded:
    """A trace of a server, read after its end."""

    folder: Path

    @cached_property
    def trace(self) -> spectrace.Trace:
        """The one trace of the one engine."""
        return spectrace.open(trace_of(self.folder))

    @cached_property
    def steps(self) -> Mapping[str, Sequence[Any]]:
        """The steps of each request in order, by the name that its client gave it."""
        names = {request.request: str(request.external_id) for request in self.trace.requests}
        found: dict[str, list[Any]] = {}
        for step in sorted(self.trace, key=lambda step: step.step):
            found.setdefault(names[step.request].removeprefix("cmpl-").removesuffix("-0"), []).append(step)
        return found

    def tokens(self, name: str) -> list[int]:
        """Everything that was committed for a request."""
        return [token for step in self.steps[name] for token in step.emitted_ids]


@dataclass(frozen=True, kw_only=True)
class Served(Recorded):
    """A server's life: clients that waited for their answers, one that hung up, one that was cut off."""

    runner: str
    answers: Mapping[str, Answer]
    counters: Mapping[str, float]
    """vLLM's, once `answers` had been given."""
    hung_up: Answer
    after: Mapping[str, Answer]
    """What was asked then."""
    counters_after: Mapping[str, float]
    """vLLM's, once it had noticed that a client hung up."""
    cut_off: Answer
    """Of the request that was running when the server was told to end."""


_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "V1": {},
    # Waits for the requests that are running.
    "V2": {"environment": _INTERPRETED, "arguments": ("--shutdown-timeout", "300")},
}


def _await_steps(folder: Path, name: str, number: int) -> None:
    """Waits until so many steps of a request are in the trace, which is written ten times a second."""
    deadline = time.monotonic() + 120
    while len(Recorded(folder).steps.get(name, ())) < number:
        assert time.monotonic() < deadline, f"{name}: nothing is recorded"
        time.sleep(0.02)


def _serve(runner: str, models: Path, folder: Path) -> Served:
    with Server(models, folder, **_SETTINGS[runner]) as server:
        answers = ask_all(server)
        counters = server.counters()
        listener = Listener(server, "hung-up")
        listener.hang_up()
        after = ask_until_idle(server)
        counters_after = server.counters()
        last = Listener(server, "cut-off")
        _await_steps(folder, "cut-off", 8)
        server.terminate()
        if runner == "V2":
            last.read_on()
        else:
            last.hang_up()
        server.wait()
    return Served(
        folder=folder,
        runner=runner,
        answers=answers,
        counters=counters,
        hung_up=listener.answer,
        after=after,
        counters_after=counters_after,
        cut_off=last.answer,
    )


@pytest.fixture(scope="session")
def served_v1(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A server of the V1 runner."""
    return _serve("V1", models, tmp_path_factory.mktemp("served") / "v1")


@pytest.fixture(scope="session")
def served_v2(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A server of the V2 runner, its kernels interpreted."""
    return _serve("V2", models, tmp_path_factory.mktemp("served") / "v2")


@pytest.fixture(params=("V1", "V2"))
def served(request: pytest.FixtureRequest) -> Served:
    """Both, one after the other; tests are shuffled, and a server takes a minute."""
    found: Served = request.getfixturevalue(f"served_{request.param.lower()}")
    return found


def counted(steps: Iterable[Any]) -> dict[str, float]:
    """Steps, counted as vLLM counts: what the verifier accepted, before the scheduler cuts."""
    own = [step for step in steps if step.proposal_ids]
    accepted = [step.num_accepted_reported for step in own]
    return {
        "drafts": len(own),
        "draft_tokens": sum(len(step.proposal_ids) for step in own),
        "accepted_tokens": sum(accepted),
        **{f"accepted_tokens_per_pos@{at}": sum(number > at for number in accepted) for at in range(K)},
    }


def test_there_is_one_trace_of_the_one_engine(served: Served) -> None:
    """The worker wrote it, no other process did; nothing in it is damaged or lost; the runner is named."""
    assert not list(served.trace.problems)
    assert not list(served.trace.gaps)
    assert served.trace.run.engine is not None
    assert served.trace.run.engine.runner == served.runner
    assert set(served.steps) == {*served.answers, *served.after, "hung-up", "cut-off"}


def test_tokens_are_those_that_the_clients_got(served: Served) -> None:
    """At once or in pieces, to a limit or to an end of text: token by token, no more and no less."""
    for name, answer in served.answers.items():
        assert served.tokens(name) == answer.token_ids, name
    reasons = {answer.finish_reason for answer in served.answers.values()}
    assert reasons == {"stop", "length"}


def test_steps_are_those_that_the_server_reports(served: Served) -> None:
    """`per_request_spec_decode_metrics` in each response: drafted and accepted, step by step."""
    for name, answer in served.answers.items():
        steps = [step for step in served.steps[name] if step.proposal_ids]
        assert [len(step.proposal_ids) for step in steps] == answer.drafted, name
        assert [step.num_accepted_reported for step in steps] == answer.accepted, name


def test_counts_are_the_servers_counters(served: Served) -> None:
    """Drafts, draft tokens, accepted tokens and those per position, to the last one."""
    assert counted(step for name in served.answers for step in served.steps[name]) == served.counters


def test_a_limit_cuts_the_last_step(served: Served) -> None:
    """What was accepted beyond max_tokens is counted by vLLM and not committed; the step says so."""
    steps = [step for name in served.answers for step in served.steps[name]]
    cut = [step for step in steps if "truncated" in (step.flags or ())]
    assert any(step.num_accepted_reported > step.num_accepted for step in cut)
    assert all(step.num_accepted_reported == step.num_accepted for step in steps if step not in cut)


def test_long_prompts_are_read_in_chunks(served: Served) -> None:
    """What a partial prefill samples is no step: the first one begins where the prompt ends."""
    prompts = {str(request.external_id): request.prompt_ids for request in served.trace.requests}
    for name in ("long", "long-pieces"):
        length = len(prompts[f"cmpl-{name}-0"] or ())
        assert length > 64
        assert served.steps[name][0].position == length
        assert served.steps[name][0].engine_step > 0


def test_a_client_that_hangs_up(served: Served) -> None:
    """Its trace goes on until vLLM notices; its last step may be one that vLLM ran and did not count."""
    steps = served.steps["hung-up"]
    got = served.hung_up.token_ids
    assert served.tokens("hung-up")[: len(got)] == got
    assert len(served.tokens("hung-up")) < 200
    others = [step for name in (*served.answers, *served.after) for step in served.steps[name]]
    assert served.counters_after in (counted([*others, *steps]), counted([*others, *steps[:-1]]))


def test_a_clean_trace_is_accused_of_nothing(served: Served) -> None:
    """The diagnosis of a healthy pair finds nothing."""
    assert [finding.id for finding in diagnose(served.trace).findings if finding.id != _TOO_SMALL] == []


def test_the_end_of_the_server(served: Served) -> None:
    """A server that waits for its requests closes the trace; one that does not leaves whole steps."""
    got, recorded = served.cut_off.token_ids, served.tokens("cut-off")
    if served.runner == "V2":
        assert served.trace.end is not None
        assert recorded == got
        assert len(got) == 200
    else:
        shorter = min(len(got), len(recorded))
        assert shorter >= 8
        assert got[:shorter] == recorded[:shorter]


def test_a_script_whose_engine_has_processes_of_its_own(
    models: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`LLM` as it is by default, engine core and worker beside it: as true as in one process."""
    folder = tmp_path_factory.mktemp("processes") / "offline"
    outcome = run_child(CHILD, models, folder, ["eagle3"], {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"})["eagle3"]
    assert len(outcome.outputs) == 6
    check_emitted(outcome)
    check_reported(outcome)
    check_steps(outcome)


def test_a_killed_server_leaves_a_trace(models: Path, tmp_path: Path) -> None:
    """SIGKILL to every process: the file is unclosed and says so, and holds whole steps up to the end."""
    with Server(models, tmp_path / "killed") as server:
        answers = ask_all(server)
        counters = server.counters()
        last = Listener(server, "cut-off")
        _await_steps(tmp_path / "killed", "cut-off", 8)
        server.kill()
        last.read_on()
    killed = Recorded(tmp_path / "killed")
    assert killed.trace.end is None
    assert not list(killed.trace.problems)
    for name, answer in answers.items():
        assert killed.tokens(name) == answer.token_ids
    assert counted(step for name in answers for step in killed.steps[name]) == counters
    got, recorded = last.answer.token_ids, killed.tokens("cut-off")
    shorter = min(len(got), len(recorded))
    assert shorter > 0
    assert got[:shorter] == recorded[:shorter]
