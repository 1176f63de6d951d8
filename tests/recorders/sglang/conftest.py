"""Real engines of SGLang, once per session: a child process runs the scenarios, the tests read what it left.

Skipped, with the reason, where SGLang is not installed: `make test-engines` builds an environment with it.
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
from tests.recorders.sglang import scenarios
from tests.recorders.sglang.faults import FAULTS
from tests.recorders.vllm.faults import Fault, break_head

# Scripts: importing them sets up an engine's process.
collect_ignore = ["child.py"]
_IS_THERE = find_spec("sglang") is not None
"""Looked at before any test runs: some put a stand-in of this name in its place."""
_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips loudly where there is no SGLang."""
    if not _IS_THERE and _HERE in item.path.parents:
        pytest.skip("NO REAL ENGINE WAS RUN: sglang is not installed here; type: make test-engines")


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
        """What SGLang returned, by the name of the request, in the order of the prompts."""
        found: Mapping[str, Any] = json.loads((self.folder / "outputs.json").read_text())["requests"]
        return found

    @property
    def texts(self) -> list[list[int]]:
        """Tokens of each prompt's answer."""
        return [output["token_ids"] for output in self.outputs.values()]

    @cached_property
    def run(self) -> Any:
        """The header; untyped, since what is missing in it fails a test anyway."""
        with spectrace.open(self.trace) as trace:
            return trace.run

    @cached_property
    def steps(self) -> Mapping[str, Sequence[Any]]:
        """The steps of each request in order."""
        found: dict[str, list[Any]] = {name: [] for name in self.outputs}
        with spectrace.open(self.trace) as trace:
            for step in sorted(trace, key=lambda step: step.step):
                found[step.request].append(step)
        return found


class Runs:
    """The scenarios of one child.

    Args:
        folder: of the outcomes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Outcome:
        return Outcome(self._folder / name)


def run_child(models: Path, out: Path, names: Sequence[str]) -> Runs:
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
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    (out.parent / f"{out.name}.log").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return Runs(out)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of the tests of vLLM, and what SGLang wants in another form."""
    from spectrace_demo import draft_path, eagle3_path, target_path
    from spectrace_demo.export import export
    from tests.recorders.sglang.heads import write_for_sglang
    from tests.recorders.vllm.heads import write_heads

    folder = tmp_path_factory.mktemp("models")
    for source in (target_path(), draft_path(), eagle3_path()):
        export(source, folder / source.name)
    write_heads(folder)
    write_for_sglang(folder)
    return folder


@pytest.fixture(scope="session")
def runs(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Healthy runs."""
    return run_child(models, tmp_path_factory.mktemp("runs") / "sglang", scenarios.TESTED)


@pytest.fixture(scope="session")
def faulty(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs with one fault each."""
    for name, (edit, finding) in FAULTS.items():
        break_head(models / "eagle3", models / f"eagle3-{name}", Fault(edit=edit, finding=finding))
    return run_child(models, tmp_path_factory.mktemp("runs") / "sglang-faults", list(FAULTS))
