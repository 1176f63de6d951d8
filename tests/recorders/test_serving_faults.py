"""What goes wrong beside or inside a recording of a serving engine: both engines' stand-ins go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import spectrace

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace.format.writer import TraceWriter  # noqa: E402
from spectrace_serving import recording as serving  # noqa: E402
from spectrace_serving.outbox import Outbox  # noqa: E402
from spectrace_serving.settings import Settings  # noqa: E402
from spectrace_sglang.recording import attach as attach_sglang  # noqa: E402
from spectrace_vllm.recording import attach as attach_vllm  # noqa: E402
from tests.recorders import sglang_fakes, vllm_fakes  # noqa: E402
from tests.recorders.serving_traces import by_request, header  # noqa: E402

PROMPTS = {"a-00000000": [1, 2, 3, 11], "b-11111111": [7, 8, 20]}


@dataclass
class Host:
    """An engine's stand-in, and what both kinds are asked."""

    engine: Any
    attach: Callable[[Settings], Any]
    step: Callable[[], None]
    text: Callable[[str], list[int]]


def vllm_host(cls: Any) -> Host:
    """One of vLLM's runners."""
    runner = cls(PROMPTS)
    worker = vllm_fakes.FakeWorker(runner)
    return Host(runner, lambda s: attach_vllm(worker, s), runner.step, lambda name: runner.world.texts[name])


def sglang_host(topk: int) -> Host:
    """SGLang's scheduler; the first step reads the prompts."""
    requests = {name: sglang_fakes.Request(name, prompt) for name, prompt in PROMPTS.items()}
    live = sglang_fakes.Scheduler(list(requests.values()), topk)

    def attach(settings: Settings) -> Any:
        recording = attach_sglang(live, settings, [])
        assert recording is not None
        live.around = lambda name: getattr(recording.follower, name)
        return recording

    def step() -> None:
        live.prefill() if live._seeds is None else live.round()

    return Host(live, attach, step, lambda name: requests[name].text)


HOSTS: dict[str, Callable[[], Host]] = {
    "V1": lambda: vllm_host(vllm_fakes.V1Runner),
    "V2": lambda: vllm_host(vllm_fakes.V2Runner),
    "chain": lambda: sglang_host(1),
    "tree": lambda: sglang_host(2),
}


@pytest.fixture(params=HOSTS)
def make(request: pytest.FixtureRequest) -> Callable[[], Host]:
    """Makes hosts of one kind."""
    return HOSTS[request.param]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that answers once the event is set."""
    answers, drain = threading.Event(), TraceWriter._drain

    def stalled(self: TraceWriter) -> bool:
        answers.wait()
        return drain(self)

    monkeypatch.setattr(TraceWriter, "_drain", stalled)
    yield answers
    answers.set()


def texts_without(make: Callable[[], Host], steps: int) -> dict[str, list[int]]:
    """What a host says that nobody records."""
    host = make()
    for _ in range(steps):
        host.step()
    return {name: list(host.text(name)) for name in PROMPTS}


def test_a_disk_that_stalls_costs_steps_and_not_the_memory(
    make: Callable[[], Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: threading.Event
) -> None:
    """What does not fit is counted as lost, and what comes after it stands where it belongs."""
    monkeypatch.setattr(serving, "BACKLOG_BYTES", 60_000)
    host = make()
    recording = host.attach(Settings(out=tmp_path))
    while recording.joiner.num_bytes <= serving.BACKLOG_BYTES:
        host.step()
    for _ in range(2):
        host.step()
    assert recording.joiner.num_bytes < 2 * serving.BACKLOG_BYTES
    disk.set()
    assert recording.writer.flush()
    assert recording.joiner.num_bytes == 0
    for _ in range(3):
        host.step()
    recording.close()
    num_steps = recording.engine_step + 1
    assert {name: host.text(name) for name in PROMPTS} == texts_without(make, num_steps)
    with spectrace.open(recording.writer.path) as trace:
        lost = sum(gap.lost for gap in trace.gaps)
    steps = by_request(recording.writer.path)
    assert lost == len(PROMPTS) * num_steps - sum(map(len, steps.values())) > 0
    for name, own in steps.items():
        assert own[-1].step == num_steps - 1
        for step in own:
            end = step.position + len(step.emitted_ids)
            assert list(step.emitted_ids) == host.text(name)[step.position : end]
            assert step.target_logprobs is not None
            assert step.draft_logprobs is not None or not step.proposal_ids


def test_a_disk_that_never_answers_ends_the_recording(
    make: Callable[[], Host],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    disk: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ids alone take memory too: the hooks come off, the engine goes on, log and header say why."""
    monkeypatch.setattr(serving, "BACKLOG_BYTES", 20_000)
    host = make()
    recording = host.attach(Settings(out=tmp_path))
    for _ in range(9):
        host.step()
    assert recording.joiner.num_bytes < 5 * serving.BACKLOG_BYTES
    assert not recording.undo
    waiting = recording.joiner.num_bytes
    host.step()
    assert recording.joiner.num_bytes == waiting
    disk.set()
    recording.close()
    assert {name: host.text(name) for name in PROMPTS} == texts_without(make, 10)
    assert "disk does not answer" in header(recording.writer.path).capture.unavailable["steps"]
    assert caplog.text.count("disk does not answer") == 1


def test_a_step_that_cannot_be_followed_ends_the_steps(
    make: Callable[[], Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its own hook fails, nothing is recorded with the times and the number of another."""
    host = make()
    recording = host.attach(Settings(out=tmp_path))
    for _ in range(3):
        host.step()

    def broken(*_: Any) -> None:
        raise RuntimeError("broken on purpose")

    name = "began" if hasattr(recording, "began") else "begins"
    monkeypatch.setattr(recording, name, broken)
    host.step()
    monkeypatch.undo()
    for _ in range(3):
        host.step()
    recording.close()
    assert {name: host.text(name) for name in PROMPTS} == texts_without(make, 7)
    for steps in by_request(recording.writer.path).values():
        assert [step.engine_step for step in steps] == [0, 1, 2]
    assert any("on purpose" in why for why in header(recording.writer.path).capture.unavailable.values())


def test_a_draft_is_not_watched_for_ever(
    make: Callable[[], Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where what follows a proposal fails, the draft's logits are not collected from then on."""

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken on purpose")

    host = make()
    recording = host.attach(Settings(out=tmp_path))
    if isinstance(host.engine, sglang_fakes.Scheduler):
        monkeypatch.setattr("spectrace_sglang.propose.on_device", broken)
        host.step()
        assert recording.follower._watch._seen is None
    else:
        monkeypatch.setattr(recording, "proposed", broken)
        for _ in range(5):
            host.step()
        assert len(recording._watch._logits) <= vllm_fakes.K
    recording.close()


def test_the_drafts_values_are_those_before_temperature(make: Callable[[], Host], tmp_path: Path) -> None:
    """A draft that draws its tokens divides its logits in place; the trace holds what the model said."""
    host = make()
    if isinstance(host.engine, sglang_fakes.Scheduler):
        live: Any = host.engine
        run = live._run
        live.server_args.speculative_use_rejection_sampling = True

        def tempered(*args: Any) -> Any:
            output = run(*args)
            output.next_token_logits.mul_(4)
            return output

        live._run = tempered
        recording = host.attach(Settings(out=tmp_path))
    else:
        host.engine.vllm_config.speculative_config.draft_sample_method = "probabilistic"
        recording = host.attach(Settings(out=tmp_path))
        head = recording.engine.draft.logits_processor
        head.register_forward_hook(lambda _module, _args, logits: logits.mul_(4))
    for _ in range(4):
        host.step()
    recording.close()
    steps = [step for own in by_request(recording.writer.path).values() for step in own[1:]]
    assert len(steps) == 6
    for step in steps:
        best = max(top[0][1] for top in step.draft_top)
        assert -0.2 < best < -0.01  # e^8 among the others; four times as much would leave nothing to them


def test_a_hook_that_does_not_come_off_keeps_no_file_open(make: Callable[[], Host], tmp_path: Path) -> None:
    """The other hooks come off, and the trace is closed."""

    def broken() -> None:
        raise RuntimeError("broken on purpose")

    host = make()
    recording = host.attach(Settings(out=tmp_path))
    host.step()
    recording.undo.append(broken)
    recording.close()
    assert not recording.undo
    with spectrace.open(recording.writer.path) as trace:
        assert trace.state == "closed"
    host.step()


def test_a_worker_ends_whatever_becomes_of_its_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker's own shutdown runs after ours, also where ours raises."""
    import sys
    from types import ModuleType, SimpleNamespace

    from spectrace_vllm import register

    ended: list[Any] = []

    class WorkerWrapperBase:
        def initialize_from_config(self) -> None: ...

        def shutdown(self) -> None:
            ended.append(self)

    def broken() -> None:
        raise RuntimeError("broken on purpose")

    module: Any = ModuleType("vllm.v1.worker.worker_base")
    module.WorkerWrapperBase = WorkerWrapperBase
    for name in ("vllm", "vllm.v1", "vllm.v1.worker"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("SPECTRACE_OUT", str(tmp_path))
    register()
    worker: Any = WorkerWrapperBase()
    worker.worker = SimpleNamespace(_spectrace=SimpleNamespace(close=broken))
    worker.shutdown()
    assert ended == [worker]
    assert "broken on purpose" in caplog.text


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_ids_stay_where_values_are_let_go(device: str) -> None:
    """Whether the values are still to be reduced, as on a CPU, or are already, as on a device."""
    pack = Outbox(torch.device(device), lambda _name, action, *args: action(*args))  # type: ignore[arg-type]
    small = pack.num_bytes
    pack.add("sampled", torch.zeros(4, dtype=torch.int64, device=device))
    rows = torch.zeros(4, 1000, device=device)
    pack.reduce("target", lambda own, values: own.add("top", values), rows)
    assert pack.num_bytes == small + 4 * 8 + 4 * 1000 * 4
    pack.drop()
    assert pack.num_bytes == small + 4 * 8
    if device == "cpu":
        assert set(pack.send()()) == {"sampled"}


def attached(runner: Any, settings: Settings) -> Any:
    """The recording of one of vLLM's runners."""
    recording = attach_vllm(vllm_fakes.FakeWorker(runner), settings)
    assert recording is not None
    return recording


@pytest.mark.parametrize("name", ["bad\ud800", "x" * 70_000], ids=["surrogate", "long"])
def test_a_name_no_trace_can_hold_costs_its_own_request_only(name: str, tmp_path: Path) -> None:
    """A client's name of a request takes nothing from the requests beside it."""
    runner = vllm_fakes.V1Runner({name: [7, 8, 20], **PROMPTS})
    recording = attached(runner, Settings(out=tmp_path))
    for _ in range(3):
        runner.step()
    recording.close()
    assert {key: len(steps) for key, steps in by_request(recording.writer.path).items()} == dict.fromkeys(
        PROMPTS, 3
    )


def test_a_flight_recorder_keeps_its_budget_though_many_steps_come_at_once(
    tmp_path: Path, disk: threading.Event
) -> None:
    """Steps that waited for a disk are rotated like those that came one by one."""
    runner = vllm_fakes.V1Runner(PROMPTS)
    for name in PROMPTS:
        runner.world.sampling[name] = vllm_fakes.sampling(ignore_eos=True, max_tokens=10**6)
    recording = attached(runner, Settings(out=tmp_path, max_bytes=40_000))
    for _ in range(200):
        runner.step()
    disk.set()
    recording.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 40_000


def test_a_reduction_that_fails_leaves_nothing_of_itself() -> None:
    """Half of what a reduction adds would be taken for all of it."""

    def half(pack: Outbox) -> None:
        pack.add("first", torch.zeros(2))
        raise MemoryError

    guard: Any = lambda _, action, *args: _quietly(action, *args)  # noqa: E731
    outbox = Outbox(torch.device("cpu"), guard)
    outbox.add("ids", torch.zeros(2))
    outbox.reduce("half", half)
    assert set(outbox.send()()) == {"ids"}


def _quietly(action: Callable[..., Any], *args: Any) -> Any:
    try:
        return action(*args)
    except MemoryError:
        return None


def test_a_copy_of_ours_that_finds_no_memory_stays_inside_our_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draft's forward goes on, though we cannot keep its logits."""

    def no_memory(*_: Any) -> None:
        raise MemoryError("no memory left")

    runner = vllm_fakes.V1Runner(PROMPTS)
    recording = attached(runner, Settings(out=tmp_path))
    monkeypatch.setattr("spectrace_vllm.watch.DraftWatch._keep", no_memory)
    for _ in range(3):
        runner.step()
    recording.close()
    assert [len(steps) for steps in by_request(recording.writer.path).values()] == [3, 3]
    assert "no memory left" in header(recording.writer.path).capture.unavailable["hook draft"]
