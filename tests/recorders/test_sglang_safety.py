"""Nothing that the SGLang recorder does or fails at may touch the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spectrace

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace_serving.settings import Settings  # noqa: E402
from spectrace_sglang.recording import attach  # noqa: E402
from tests.recorders.serving_fakes import HIDDEN, KEPT, VOCAB  # noqa: E402
from tests.recorders.serving_hooks import check_nothing_is_there, watch_hooks  # noqa: E402
from tests.recorders.serving_traces import by_request, header  # noqa: E402
from tests.recorders.sglang_records import record, scheduler  # noqa: E402


@pytest.fixture(params=[1, 2], ids=["chain", "tree"])
def live(request: pytest.FixtureRequest) -> Any:
    """A scheduler that proposes chains, and one that proposes trees."""
    return scheduler(request.param)


def untouched(topk: int, rounds: int = 6) -> list[list[int]]:
    """Texts of a scheduler that nobody follows."""
    healthy = scheduler(topk)
    healthy.prefill()
    for _ in range(rounds):
        healthy.round()
    return [request.text for request in healthy.requests]


@pytest.mark.parametrize("name", ["add_target", "add_nodes", "add_seed", "parents_of"])
def test_a_failing_hook_is_silent_from_then_on(
    live: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """One warning, the reason in the header, and an engine that goes on as if nothing were there."""
    if name == "parents_of":  # nobody asks for those of a chain
        live = scheduler(2)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken on purpose")

    module = "propose" if name in ("add_nodes", "add_seed") else "follow"
    monkeypatch.setattr(f"spectrace_sglang.{module}.{name}", broken)
    with caplog.at_level(logging.WARNING, logger="spectrace"):
        path = record(live, tmp_path)
    assert [request.text for request in live.requests] == untouched(live.topk)
    assert len([r for r in caplog.records if "broken on purpose" in r.getMessage()]) == 1
    assert any("broken on purpose" in reason for reason in header(path).capture.unavailable.values())


def _garbage_links(verify: Any) -> None:
    verify.retrieve_next_token.fill_(10**9)
    verify.retrieve_next_sibling.copy_(torch.arange(verify.draft_token_num))


def _wild_ids(verify: Any) -> None:
    verify.draft_token.fill_(-(2**31))


def _short(verify: Any) -> None:
    verify.draft_token = verify.draft_token[:3]


def _no_positions(verify: Any) -> None:
    verify.positions = None


def with_sample(recording: Any, spoiled: Callable[..., Any]) -> Callable[[str], Any]:
    """The follower's functions; that around ``eagle_sample`` is handed to another, before its arguments."""

    def around(name: str) -> Any:
        follow = getattr(recording.follower, name)
        return follow if name != "eagle_sample" else lambda _, *args: spoiled(follow, *args)

    return around


@pytest.mark.parametrize("spoil", [_garbage_links, _wild_ids, _short, _no_positions])
def test_a_proposal_of_another_shape_stops_no_engine(
    live: Any, tmp_path: Path, spoil: Callable[[Any], None]
) -> None:
    """Indices that point nowhere, ids out of range, lengths that do not fit: the decision is SGLang's own."""
    original = live._eagle_sample
    kept: list[Any] = []

    def sample(verify: Any, *args: Any) -> Any:
        return original(kept.pop(), *args)

    recording = attach(live, Settings(out=tmp_path), [])
    assert recording is not None

    def spoiled(follow: Any, verify: Any, *args: Any) -> Any:
        kept.append(type(verify)(**vars(verify)))
        for key, value in vars(verify).items():
            if isinstance(value, torch.Tensor):
                setattr(verify, key, value.clone())
        spoil(verify)
        return follow(sample, verify, *args)

    live.around = with_sample(recording, spoiled)
    live.prefill()
    for _ in range(6):
        live.round()
    recording.close()
    assert [request.text for request in live.requests] == untouched(live.topk)
    with spectrace.open(recording.writer.path) as trace:
        assert len(list(trace)) >= 2


@pytest.mark.parametrize("states", [None, (4, 7), (1, 3 * HIDDEN)])
def test_states_of_another_shape_cost_the_states_only(tmp_path: Path, states: Any) -> None:
    """No states, an odd width, too few rows: the rest of the step is recorded."""
    live = scheduler()
    live._states = lambda rows: torch.zeros(rows, 3 * HIDDEN)
    path_of = live._eagle_sample

    def eagle_sample(verify: Any, batch: Any, output: Any, mask: Any) -> Any:
        output.hidden_states = torch.zeros(len(verify.draft_token), 3 * HIDDEN)
        return path_of(verify, batch, output, mask)

    recording = attach(live, Settings(out=tmp_path), [])
    assert recording is not None

    def spoiled(follow: Any, verify: Any, batch: Any, output: Any, *args: Any) -> Any:
        output.hidden_states = None if states is None else torch.zeros(states)
        return follow(eagle_sample, verify, batch, output, *args)

    live.around = with_sample(recording, spoiled)
    live.prefill()
    for _ in range(3):
        live.round()
    recording.close()
    assert [request.text for request in live.requests] == untouched(1, 3)
    steps = by_request(recording.writer.path)["a"]
    assert [step.step for step in steps] == [0, 1, 2, 3]
    assert steps[1].target_ids is not None


def test_an_idle_batch_is_no_round(live: Any, tmp_path: Path) -> None:
    """Where other ranks have work and this one has none, SGLang runs empty batches."""
    recording = attach(live, Settings(out=tmp_path), [])
    assert recording is not None
    batch = live._batch("idle")
    follower, nothing = recording.follower, (torch.empty(0),) * 3
    assert follower.draft(lambda *_: "kept", live.drafter, batch) == "kept"
    assert follower.eagle_sample(lambda *_: nothing, None, batch, None) is nothing
    assert follower._draft_extend_for_decode(lambda *_: "kept", live.drafter, batch, None) == "kept"
    recording.close()
    assert not by_request(recording.writer.path)


@pytest.mark.parametrize("topk", [1, 2])
def test_no_hook_waits_for_the_device(topk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device whose tensors have no values, what looks at one fails: each hook runs, and none does."""
    monkeypatch.setattr("spectrace_sglang.engine.Engine.target_ids", None)
    monkeypatch.setattr("spectrace_sglang.engine.Engine.tells_raw_ids", False)
    monkeypatch.setattr("spectrace_sglang.recording.run_facts", lambda *_: _HEADER)
    watched = watch_hooks(monkeypatch)
    live = scheduler(topk, device="meta")
    live.drafter.hot_token_id = torch.arange(KEPT, device="meta")
    recording = attach(live, Settings(out=tmp_path), [])
    assert recording is not None
    live.around = lambda name: getattr(recording.follower, name)
    live.prefill()
    for _ in range(3):
        live.round()
    assert not watched.failed
    hooks = {"draft", "draft_forward", "eagle_sample", "forward_batch_generation", "sample", "seed", "taps"}
    assert watched.names == hooks | {"draft inputs", "draft logits", "states", "target"}
    assert watched.events == {"Started": 2, "Verified": 4, "Seeded": 4}
    check_nothing_is_there()
    recording.close()


_HEADER = {"target": {"vocab_size": VOCAB, "hidden_size": HIDDEN}, "verification": {}}


def test_hooks_are_taken_off(live: Any, tmp_path: Path) -> None:
    """A closed recording leaves the live objects as they were."""
    runner = live.drafter.draft_runner
    before, sampler = set(vars(runner)), live.target_runner.sample
    record(live, tmp_path)
    assert set(vars(runner)) == before
    assert live.target_runner.sample is sampler
    assert not runner.model.model.fc._forward_hooks


def test_a_scheduler_that_does_not_speculate_writes_nothing(tmp_path: Path) -> None:
    """There is nothing to record, and no empty trace says so."""
    live = scheduler()
    live.draft_worker = None
    assert attach(live, Settings(out=tmp_path), []) is None
    assert not list(tmp_path.iterdir())
