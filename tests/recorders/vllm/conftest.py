"""Real engines, once per session and runner: a child process runs the scenarios, the tests read what it left.

Skipped, with the reason, where vLLM is not installed: `make test-engines` builds an environment that has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import spectrace
from tests.recorders.vllm import scenarios
from tests.recorders.vllm.faults import FAULTS, break_head
from tests.recorders.vllm.triton_interpreter import ENVIRONMENT

# Scripts: importing them sets up an engine's process.
collect_ignore = ["child.py", "interpreted"]
_IS_THERE = find_spec("vllm") is not None
"""Looked at before any test runs: some put a stand-in of this name in its place."""
_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips loudly where there is no vLLM."""
    if not _IS_THERE and _HERE in item.path.parents:
        pytest.skip("NO REAL ENGINE WAS RUN: vllm is not installed here; type: make test-engines")


@dataclass(frozen=True)
class Outcome:
    """One scenario that was run."""

    folder: Path

    @property
    def trace(self) -> Path:
        """The trace."""
        return scenarios.trace_of(self.folder)

    @cached_property
    def outputs(self) -> Mapping[str, Any]:
        """What vLLM returned, by the name of the request."""
        found: Mapping[str, Any] = json.loads((self.folder / "outputs.json").read_text())["requests"]
        return found

    @cached_property
    def run(self) -> Any:
        """The header; untyped, since what is missing in it fails a test anyway."""
        with spectrace.open(self.trace) as trace:
            return trace.run

    @cached_property
    def steps(self) -> Mapping[str, Sequence[Any]]:
        """The steps of each request in order, by the name vLLM's caller knows."""
        found: dict[str, list[Any]] = {}
        with spectrace.open(self.trace) as trace:
            assert not list(trace.problems)
            for step in sorted(trace, key=lambda step: step.step):
                found.setdefault(step.request.rpartition("-")[0], []).append(step)
        return found


class Runs:
    """The scenarios of one runner.

    Args:
        folder: of the outcomes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Outcome:
        return Outcome(self._folder / name)


def run_child(models: Path, out: Path, names: Sequence[str], environment: Mapping[str, str]) -> Runs:
    """Runs scenarios in a process of their own.

    SPECTRACE_ENGINE_RUNS names a folder that keeps them from session to session, for work on the tests.
    """
    kept = os.environ.get("SPECTRACE_ENGINE_RUNS")
    if kept is not None:
        out = Path(kept) / out.name
        if out.exists():
            return Runs(out)
        out.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "recorders")])
    command = [sys.executable, str(_HERE / "child.py"), str(models), str(out), *names]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, **environment}, capture_output=True, text=True
    )
    (out.parent / f"{out.name}.log").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return Runs(out)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled models with heads of 64, the smallest above theirs that vLLM's attention knows on a CPU."""
    from spectrace_demo import draft_path, eagle3_path, target_path
    from spectrace_demo.export import export
    from tests.recorders.vllm.heads import write_heads

    folder = tmp_path_factory.mktemp("models")
    for source in (target_path(), draft_path(), eagle3_path()):
        export(source, folder / source.name)
    write_heads(folder)
    return folder


@pytest.fixture(scope="session")
def v1(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs of vLLM's V1 runner."""
    return run_child(models, tmp_path_factory.mktemp("runs") / "v1", scenarios.V1, {})


@pytest.fixture(scope="session")
def v2(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs of vLLM's V2 runner, its kernels interpreted."""
    return run_child(models, tmp_path_factory.mktemp("runs") / "v2", scenarios.V2, ENVIRONMENT)


@pytest.fixture(scope="session")
def faulty(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs of vLLM's V1 runner with one fault each."""
    for name, fault in FAULTS.items():
        break_head(models / "eagle3", models / f"eagle3-{name}", fault)
    return run_child(models, tmp_path_factory.mktemp("runs") / "faults", [*FAULTS, "sampled"], {})
