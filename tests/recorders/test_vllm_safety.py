"""Nothing that the vLLM recorder does or fails at may touch the engine."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from spectrace.errors import UnsupportedEngine

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace_serving.settings import Settings  # noqa: E402
from spectrace_vllm.hooks import V1, V2, RunnerKind  # noqa: E402
from spectrace_vllm.recording import attach  # noqa: E402
from tests.recorders import vllm_fakes as fakes  # noqa: E402
from tests.recorders.serving_hooks import check_nothing_is_there, watch_hooks  # noqa: E402
from tests.recorders.serving_traces import header  # noqa: E402
from tests.recorders.vllm_records import PROMPTS, RUNNERS, record  # noqa: E402

# What a runner keeps of its last step.
_STEP_STATE = {
    "batch",
    "input_batch",
    "query_start_loc",
    "input_ids",
    "positions",
    "seq_lens",
    "discard_request_mask",
}


@pytest.fixture(params=RUNNERS, ids=("V1", "V2"))
def runner(request: pytest.FixtureRequest) -> Any:
    """A runner with two requests."""
    return request.param(PROMPTS)


@pytest.mark.parametrize(("cls", "kind"), [*zip(RUNNERS, (V1, V2))], ids=("V1", "V2"))
def test_no_hook_waits_for_the_device(
    cls: Any, kind: RunnerKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device whose tensors have no values, what looks at one fails: each hook runs, and none does.

    Nor does anything there ask the device to finish.
    """
    watched = watch_hooks(monkeypatch)
    runner = cls(PROMPTS, device="meta")
    runner.world.sampled = lambda batch: (
        torch.zeros(batch.num_reqs, fakes.K + 1, dtype=torch.int64, device="meta"),
        torch.ones(batch.num_reqs, dtype=torch.int64, device="meta"),
    )
    recording = attach(fakes.FakeWorker(runner), Settings(out=tmp_path))
    assert recording is not None
    for _ in range(3):
        runner.step()
    assert not watched.failed
    hooks = {hook.name for hook in kind.hooks}
    assert watched.names == hooks | {"draft", "draft inputs", "draft positions", "states", "target"}
    assert watched.events == {"Started": 2, "Verified": 3, "Proposed": 3}
    check_nothing_is_there()
    recording.close()


def test_a_failing_hook_is_silent_from_then_on(
    runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, the reason in the header, and an engine that goes on as if nothing were there."""
    from spectrace_vllm import v1, v2

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(v1, "add_target", broken)
    monkeypatch.setattr(v2, "add_target", broken)
    healthy = type(runner)(PROMPTS)
    for _ in range(6):
        healthy.step()
    with caplog.at_level(logging.WARNING, logger="spectrace"):
        path = record(runner, tmp_path)
    assert runner.world.texts == healthy.world.texts
    assert len([r for r in caplog.records if "broken on purpose" in r.getMessage()]) == 1
    assert any("broken on purpose" in reason for reason in header(path).capture.unavailable.values())


def test_hooks_are_taken_off(runner: Any, tmp_path: Path) -> None:
    """A closed recording leaves the live objects as they were."""
    before = set(vars(runner))
    record(runner, tmp_path)
    assert set(vars(runner)) - before <= _STEP_STATE
    drafter = getattr(runner, "drafter", None) or runner.speculator
    assert not drafter.model._forward_pre_hooks
    assert not drafter.model.logits_processor._forward_hooks


def test_an_unknown_runner_is_left_alone(tmp_path: Path) -> None:
    """A runner without the functions of the table is not hooked, and the reason says what to do."""

    class Other(fakes.V1Runner):
        def _sample(self, something_else: Any) -> Any:  # type: ignore[override]
            return None

    runner = Other(PROMPTS)
    with pytest.raises(UnsupportedEngine, match=r"_sample takes \(something_else\).*newer spectrace"):
        attach(fakes.FakeWorker(runner), Settings(out=tmp_path))
    assert "_sample" not in vars(runner)
    assert not list(tmp_path.iterdir())
