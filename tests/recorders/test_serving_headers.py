"""What the header of a serving engine's trace says is missing, and what was asked for; stand-ins only."""

from __future__ import annotations

import json
import logging
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace.errors import RecorderError  # noqa: E402
from spectrace.format.fields import FIELDS  # noqa: E402
from spectrace.format.records import Run  # noqa: E402
from spectrace.report.command import command_line  # noqa: E402
from spectrace_serving.settings import Settings  # noqa: E402
from tests.recorders import sglang_fakes, vllm_fakes  # noqa: E402
from tests.recorders.serving_traces import by_request, header, trace_of  # noqa: E402

PROMPTS = {"a-00000000": [1, 2, 3, 11]}


def record_vllm(runner: Any, settings: Settings) -> None:
    """Records some steps of a runner."""
    from spectrace_vllm.recording import attach

    recording = attach(vllm_fakes.FakeWorker(runner), settings)
    assert recording is not None
    for _ in range(4):
        runner.step()
    recording.close()


def record_sglang(live: Any, settings: Settings) -> None:
    """Records some rounds of a scheduler."""
    from spectrace_sglang.recording import attach

    recording = attach(live, settings, [])
    assert recording is not None
    live.around = lambda name: getattr(recording.follower, name)
    live.prefill()
    for _ in range(3):
        live.round()
    recording.close()


def scheduler() -> Any:
    """SGLang's, with one request."""
    return sglang_fakes.Scheduler([sglang_fakes.Request(name, ids) for name, ids in PROMPTS.items()])


def record(engine: str, settings: Settings) -> None:
    """Records one of the engines."""
    if engine == "sglang":
        record_sglang(scheduler(), settings)
    else:
        runner = {"V1": vllm_fakes.V1Runner, "V2": vllm_fakes.V2Runner}[engine](PROMPTS)
        record_vllm(runner, settings)


@pytest.mark.parametrize("engine", ["V1", "V2", "sglang"])
def test_what_ids_alone_leave_out_has_that_reason(engine: str, tmp_path: Path) -> None:
    """Every field that full steps have and these have not is named, and none that is there."""
    for is_full, name in ((True, "full"), (False, "ids")):
        record(engine, Settings(out=tmp_path / name, is_full=is_full))
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


@pytest.mark.parametrize("engine", ["V1", "V2", "sglang"])
def test_what_the_environment_asked_for_stands_among_the_flags(engine: str, tmp_path: Path) -> None:
    """By the variable's name; who leaves all at the default finds none of them."""
    record(engine, Settings(out=tmp_path / "ids", is_full=False, every=2, max_bytes=1 << 20))
    record(engine, Settings(out=tmp_path / "full"))
    flags = [header(trace_of(tmp_path / name)).engine.flags for name in ("ids", "full")]
    asked = [
        {name: value for name, value in found.items() if name.startswith("SPECTRACE_")} for found in flags
    ]
    assert asked[0] == {
        "SPECTRACE_CAPTURE": "ids",
        "SPECTRACE_SAMPLE": "1/2",
        "SPECTRACE_MAX_BYTES": 1 << 20,
    }
    assert asked[1] == {}


@pytest.mark.parametrize("engine", ["V1", "V2", "sglang"])
def test_one_line_of_the_log_says_that_it_records(
    engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the file and what goes into it; that texts cannot be had is a warning of its own."""
    with caplog.at_level(logging.INFO, logger="spectrace"):
        record(engine, Settings(out=tmp_path, every=2))
    said = [line.getMessage() for line in caplog.records if line.levelno == logging.INFO]
    assert said == [f"spectrace: recording to {trace_of(tmp_path)} (full, 1/2 of the requests)"]


@pytest.mark.parametrize(("graphs", "mode"), [("NONE", "eager"), ("PIECEWISE", "unknown")])
def test_a_device_without_graphs_is_eager(graphs: str, mode: str, tmp_path: Path) -> None:
    """VLLM's own setting decides, where nobody asked for --enforce-eager: on a CPU it is NONE."""
    runner = vllm_fakes.V1Runner(PROMPTS)
    runner.vllm_config.model_config.enforce_eager = False
    runner.vllm_config.compilation_config = SimpleNamespace(cudagraph_mode=SimpleNamespace(name=graphs))
    record_vllm(runner, Settings(out=tmp_path))
    assert header(trace_of(tmp_path)).capture.mode == mode


def test_a_budget_that_is_too_small_names_its_variable(tmp_path: Path) -> None:
    """The writer knows what the header takes; who serves has typed a variable."""
    with pytest.raises(RecorderError, match=r"spectrace: SPECTRACE_MAX_BYTES must be at least [0-9,]+ for"):
        record_vllm(vllm_fakes.V1Runner(PROMPTS), Settings(out=tmp_path, max_bytes=500))


def test_a_draft_of_the_targets_own_has_no_list_of_weights(tmp_path: Path) -> None:
    """MTP: a part of the target's checkpoint, and both engines say so."""
    record_vllm(vllm_fakes.V1Runner(PROMPTS, method="mtp"), Settings(out=tmp_path / "vllm"))
    live = scheduler()
    live.spec_algorithm.name = "EAGLE"
    live.drafter.draft_runner.model_config.hf_config.architectures = ["MiMoMTP"]
    record_sglang(live, Settings(out=tmp_path / "sglang"))
    for engine in ("vllm", "sglang"):
        run = header(trace_of(tmp_path / engine))
        assert run.method == "mtp"
        assert "part of the target's checkpoint" in run.capture.unavailable["draft.parameters"]


def test_rates_that_were_asked_for_are_repeated(tmp_path: Path) -> None:
    """A length is turned into rates by vLLM, so rates are what a report gives it again."""
    rates = [1.0, 0.6, 0.0]
    runner = vllm_fakes.V2Runner(PROMPTS, synthetic_acceptance_rates=rates, synthetic_acceptance_length=None)
    runner.vllm_config.speculative_config.rejection_sample_method = "synthetic"
    record_vllm(runner, Settings(out=tmp_path))
    run: Run = header(trace_of(tmp_path))
    words = shlex.split(command_line(run) or "")
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config["synthetic_acceptance_rates"] == rates
    assert "synthetic_acceptance_length" not in config
