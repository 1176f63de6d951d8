"""What the header of a serving engine's trace says is missing, and what was asked for; stand-ins only."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace.format.fields import FIELDS  # noqa: E402
from spectrace.format.records import Run  # noqa: E402
from spectrace.report.command import command_line  # noqa: E402
from spectrace_serving.settings import Settings  # noqa: E402
from tests.recorders import sglang_fakes, vllm_fakes  # noqa: E402
from tests.recorders.serving_traces import by_request, header, trace_of  # noqa: E402

PROMPTS = {"a-00000000": [1, 2, 3, 11]}


def record_vllm(runner: Any, folder: Path, is_full: bool = True) -> None:
    """Records some steps of a runner."""
    from spectrace_vllm.recording import attach

    recording = attach(vllm_fakes.FakeWorker(runner), Settings(out=folder, is_full=is_full))
    assert recording is not None
    for _ in range(4):
        runner.step()
    recording.close()


def record_sglang(live: Any, folder: Path, is_full: bool = True) -> None:
    """Records some rounds of a scheduler."""
    from spectrace_sglang.recording import attach

    recording = attach(live, Settings(out=folder, is_full=is_full), [])
    assert recording is not None
    live.around = lambda name: getattr(recording.follower, name)
    live.prefill()
    for _ in range(3):
        live.round()
    recording.close()


def scheduler() -> Any:
    """SGLang's, with one request."""
    return sglang_fakes.Scheduler([sglang_fakes.Request(name, ids) for name, ids in PROMPTS.items()])


def record(engine: str, folder: Path, is_full: bool) -> None:
    """Records one of the engines."""
    if engine == "sglang":
        record_sglang(scheduler(), folder, is_full)
    else:
        runner = {"V1": vllm_fakes.V1Runner, "V2": vllm_fakes.V2Runner}[engine](PROMPTS)
        record_vllm(runner, folder, is_full)


@pytest.mark.parametrize("engine", ["V1", "V2", "sglang"])
def test_what_ids_alone_leave_out_has_that_reason(engine: str, tmp_path: Path) -> None:
    """Every field that full steps have and these have not is named, and none that is there."""
    for is_full, name in ((True, "full"), (False, "ids")):
        record(engine, tmp_path / name, is_full)
    full, ids = (by_request(trace_of(tmp_path / name))["a-00000000"] for name in ("full", "ids"))
    names = {field.name.partition(".")[0] for field in FIELDS}
    there = [
        {name for step in steps for name in names if getattr(step, name, None) is not None}
        for steps in (full, ids)
    ]
    reasons = {
        name: reason
        for name, reason in header(trace_of(tmp_path / "ids")).capture.unavailable.items()
        if reason == "SPECTRACE_CAPTURE=ids"
    }
    assert set(reasons) == there[0] - there[1] != set()
    assert "SPECTRACE_CAPTURE=ids" not in header(trace_of(tmp_path / "full")).capture.unavailable.values()


def test_a_draft_of_the_targets_own_has_no_list_of_weights(tmp_path: Path) -> None:
    """MTP: a part of the target's checkpoint, and both engines say so."""
    record_vllm(vllm_fakes.V1Runner(PROMPTS, method="mtp"), tmp_path / "vllm")
    live = scheduler()
    live.spec_algorithm.name = "EAGLE"
    live.drafter.draft_runner.model_config.hf_config.architectures = ["MiMoMTP"]
    record_sglang(live, tmp_path / "sglang")
    for engine in ("vllm", "sglang"):
        run = header(trace_of(tmp_path / engine))
        assert run.method == "mtp"
        assert "part of the target's checkpoint" in run.capture.unavailable["draft.parameters"]


def test_rates_that_were_asked_for_are_repeated(tmp_path: Path) -> None:
    """A length is turned into rates by vLLM, so rates are what a report gives it again."""
    rates = [1.0, 0.6, 0.0]
    runner = vllm_fakes.V2Runner(PROMPTS, synthetic_acceptance_rates=rates, synthetic_acceptance_length=None)
    runner.vllm_config.speculative_config.rejection_sample_method = "synthetic"
    record_vllm(runner, tmp_path)
    run: Run = header(trace_of(tmp_path))
    words = shlex.split(command_line(run) or "")
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config["synthetic_acceptance_rates"] == rates
    assert "synthetic_acceptance_length" not in config
