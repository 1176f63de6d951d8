"""`spectrace doctor`: hooks that fit and hooks that do not; no engine is imported."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from spectrace.cli import doctor

HOOK = {"runner": "V2", "name": "Runner.sample", "needed": True, "fits": True}
MISFIT = {
    "runner": "V1",
    "name": "Runner._sample",
    "needed": True,
    "fits": False,
    "problem": "Runner._sample is not there\x1b[2J",
    "loses": "everything",
}


def entry(name: str, examine: Callable[[], Any]) -> Any:
    """An entry point."""
    return SimpleNamespace(name=name, load=lambda: examine)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says which recorders are installed."""
    return lambda *entries: monkeypatch.setattr(doctor, "entry_points", lambda group: list(entries))


def test_what_fits_and_what_does_not(installed: Callable[..., None]) -> None:
    """Fitting hooks share a line, each misfit says what a trace lacks, escapes are visible."""
    state = {"engine": "vllm", "version": "9.9", "hooks": [HOOK, MISFIT], "advice": ["set SPECTRACE_OUT"]}
    installed(entry("vllm", lambda: state))
    done = CliRunner().invoke(doctor.command)
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "vllm 9.9",
        "  V2 fits: Runner.sample",
        "  V1 does not fit: Runner._sample is not there\\x1b[2J; without it a trace lacks everything",
        "  next: set SPECTRACE_OUT",
    ]


def test_what_holds_for_all_engines_is_said_once(installed: Callable[..., None]) -> None:
    """At the end, for it is no engine's; what is one engine's stands under it."""
    states: list[dict[str, Any]] = [
        {"engine": name, "version": "1", "hooks": [HOOK], "advice": [f"install {name}", "set SPECTRACE_OUT"]}
        for name in ("sglang", "vllm")
    ]
    installed(*(entry(state["engine"], partial(dict, state)) for state in states))
    lines = CliRunner().invoke(doctor.command).output.splitlines()
    assert [line for line in lines if "next:" in line] == [
        "  next: install sglang",
        "  next: install vllm",
        "next: set SPECTRACE_OUT",
    ]
    assert lines[-1] == "next: set SPECTRACE_OUT"


def test_what_would_be_recorded_is_the_last_line(installed: Callable[..., None]) -> None:
    """Once, also where one engine of two is well, and with escapes made visible."""
    well = {"engine": "vllm", "version": "1", "hooks": [HOOK], "advice": [], "records": "/a\x1b, full"}
    ill = {"engine": "sglang", "version": None, "hooks": [], "advice": ["install sglang"]}
    installed(entry("sglang", lambda: ill), entry("vllm", lambda: well))
    assert CliRunner().invoke(doctor.command).output.splitlines()[-2:] == [
        "",
        "would record to /a\\x1b, full",
    ]


def test_help_says_what_the_exit_code_means() -> None:
    """A script reads JSON; the code is that of the command itself."""
    assert "exit code is 0" in " ".join(CliRunner().invoke(doctor.command, ["--help"]).output.split())


def test_json(installed: Callable[..., None]) -> None:
    """The same as one object, with the recorder's name."""
    installed(entry("vllm", lambda: {"engine": "vllm", "version": None, "hooks": [MISFIT], "advice": []}))
    found = json.loads(CliRunner().invoke(doctor.command, ["--json"]).output)
    assert found["recorders"][0]["recorder"] == "vllm"
    assert found["recorders"][0]["hooks"][0]["fits"] is False


def test_a_recorder_that_cannot_be_loaded_is_said(installed: Callable[..., None]) -> None:
    """A broken installation is a line of the answer."""

    def broken() -> Any:
        raise ImportError("no torch here")

    installed(entry("vllm", broken))
    assert "cannot be loaded: ImportError: no torch here" in CliRunner().invoke(doctor.command).output


def test_nothing_installed(installed: Callable[..., None]) -> None:
    """Without recorders the answer says so."""
    installed()
    assert "no recorder" in CliRunner().invoke(doctor.command).output


def make_vllm(folder: Path, sample: str) -> None:
    """Writes the sources that the doctor of vLLM reads; their import would fail."""
    for name, text in {
        "__init__.py": "raise RuntimeError('imported')",
        "v1/worker/gpu_model_runner.py": (
            "class GPUModelRunner:\n"
            "    def execute_model(self, scheduler_output): ...\n"
            f"    def _sample(self, {sample}): ...\n"
        ),
    }.items():
        file = folder / "vllm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def vllm_doctor() -> Any:
    """The doctor of vLLM's recorder, without its engine."""
    return pytest.importorskip("spectrace_vllm.doctor")


@pytest.mark.parametrize(
    ("sample", "fits"), [("logits, spec_decode_metadata", True), ("logits, metadata", False)]
)
def test_vllm_is_read_and_not_imported(
    vllm_doctor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: str, fits: bool
) -> None:
    """Its source is parsed; a function with other parameters does not fit, one that is not there neither."""
    make_vllm(tmp_path, sample)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    hooks = {f"{hook['runner']} {hook['name']}": hook for hook in vllm_doctor.examine()["hooks"]}
    assert hooks["V1 GPUModelRunner._sample"]["fits"] is fits
    assert "vllm" not in sys.modules
    gone = hooks["V2 GPUModelRunner.sample"]
    assert (gone["fits"], gone["problem"]) == (False, "GPUModelRunner.sample is not there")


def test_vllm_that_is_not_there(vllm_doctor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without vLLM the advice is to install it."""
    monkeypatch.setattr("spectrace_serving.hooks.find_spec", lambda name: None)
    assert "not installed" in vllm_doctor.examine()["advice"][0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPECTRACE_CAPTURE", "everything"),
        ("SPECTRACE_SAMPLE", "1/0"),
        ("SPECTRACE_SAMPLE", "2"),
        ("SPECTRACE_MAX_BYTES", "lots"),
    ],
)
def test_a_variable_that_means_nothing_is_named(
    vllm_doctor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """What the plugin would refuse at start, the doctor says before."""
    make_vllm(tmp_path, "logits, spec_decode_metadata")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SPECTRACE_OUT", str(tmp_path))
    monkeypatch.setenv(name, value)
    assert any(advice.startswith(f"{name}=") for advice in vllm_doctor.examine()["advice"])


@pytest.fixture
def fitting(vllm_doctor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The doctor of vLLM beside a vLLM that fits, a registered plugin and a folder to record to."""
    make_vllm(tmp_path, "logits, spec_decode_metadata")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    registered = [SimpleNamespace(name="spectrace")]
    monkeypatch.setattr("spectrace_serving.doctor.entry_points", lambda group: registered)
    monkeypatch.setenv("SPECTRACE_OUT", "traces")
    return vllm_doctor


def test_every_wrong_variable_is_named(fitting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence each: who mends one need not ask again for the next."""
    for name, value in (("CAPTURE", "all"), ("SAMPLE", "2"), ("MAX_BYTES", "lots")):
        monkeypatch.setenv(f"SPECTRACE_{name}", value)
    found = fitting.examine()
    assert [advice.partition("=")[0] for advice in found["advice"]] == [
        "SPECTRACE_CAPTURE",
        "SPECTRACE_SAMPLE",
        "SPECTRACE_MAX_BYTES",
    ]
    assert "records" not in found
    monkeypatch.setenv("SPECTRACE_MAX_BYTES", "500")
    assert "too little" in fitting.examine()["advice"][2]


def test_a_budget_that_a_header_may_not_fit_is_named(fitting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server would refuse it at start; what any model fits passes."""
    monkeypatch.setenv("SPECTRACE_MAX_BYTES", "500")
    assert fitting.examine()["advice"][0].startswith("SPECTRACE_MAX_BYTES=500: may be too little")
    monkeypatch.setenv("SPECTRACE_MAX_BYTES", "16M")
    assert fitting.examine()["advice"] == []


def test_what_would_be_recorded_is_said_where_all_is_well(
    fitting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder by its whole path, the level and the choice."""
    assert fitting.examine()["records"] == f"{tmp_path / 'traces'}, full, every request"
    monkeypatch.setenv("SPECTRACE_CAPTURE", "ids")
    monkeypatch.setenv("SPECTRACE_SAMPLE", "1/2")
    assert fitting.examine()["records"] == f"{tmp_path / 'traces'}, ids, 1/2 of the requests"
