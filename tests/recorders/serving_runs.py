"""Real engines, whichever, once per session: a child process runs scenarios, the tests read what it left.

Which scenarios there are, and how an engine is made to run on a CPU, stands in the engine's own folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.analysis.diagnosis.examine import diagnose
from spectrace.analysis.diagnosis.verdict import Diagnosis
from tests.recorders.serving_traces import by_request, header, trace_of

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """One scenario that was run."""

    folder: Path

    @property
    def trace(self) -> Path:
        """The trace."""
        return trace_of(self.folder)

    @cached_property
    def outputs(self) -> Mapping[str, Any]:
        """What the engine returned, by the name of the request, in the order of the prompts."""
        found: Mapping[str, Any] = json.loads((self.folder / "outputs.json").read_text())["requests"]
        return found

    @property
    def texts(self) -> list[list[int]]:
        """Tokens of each prompt's answer."""
        return [output["token_ids"] for output in self.outputs.values()]

    @cached_property
    def run(self) -> Any:
        """The header; untyped, since what is missing in it fails a test anyway."""
        return header(self.trace)

    @cached_property
    def steps(self) -> Mapping[str, Sequence[Any]]:
        """The steps of each request in order, by the name its caller knows, in the order of the prompts."""
        with spectrace.open(self.trace) as trace:
            names = {one.external_id or one.request: one.request for one in trace.requests}
        found = by_request(self.trace)
        return {name: found[names[name]] for name in self.outputs if names.get(name) in found}

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What `diagnose` says."""
        with spectrace.open(self.trace) as trace:
            return diagnose(trace)

    @property
    def findings(self) -> list[str]:
        """Ids of what it finds, most certain first, without what it says of the number of steps."""
        return [finding.id for finding in self.diagnosis.findings if finding.id != "workload/too-small"]

    @property
    def cleared(self) -> set[str]:
        """Ids of what it looked at and found in order."""
        return {cleared.id for cleared in self.diagnosis.cleared}


_PATIENCE = 1800
"""Seconds after which a child hangs; a busy machine takes a third of it."""


class Runs:
    """The scenarios of one child.

    Args:
        folder: of the outcomes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Outcome:
        return Outcome(self._folder / name)


def need(engine: str, is_there: bool) -> None:
    """Skips loudly, or fails where SPECTRACE_ENGINES names the engine: the make targets that are for it."""
    if is_there:
        return
    message = f"NO REAL ENGINE WAS RUN: {engine} is not installed here; type: make test-engines"
    if engine in os.environ.get("SPECTRACE_ENGINES", "").split(","):
        pytest.fail(message)
    pytest.skip(message)


def run_child(
    script: Path, models: Path, out: Path, names: Sequence[str], environment: Mapping[str, str] | None = None
) -> Runs:
    """Runs scenarios in a process of their own.

    SPECTRACE_ENGINE_RUNS names a folder that keeps them from session to session, for work on the tests.

    Args:
        script: runs them.
        models: folder of the models.
        out: folder of the outcomes.
        names: of the scenarios.
        environment: what the process needs besides this one's.
    """
    kept = os.environ.get("SPECTRACE_ENGINE_RUNS")
    if kept is not None:
        out = Path(kept) / out.name
        if out.exists():
            return Runs(out)
        out.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "recorders")])
    done = subprocess.run(
        [sys.executable, str(script), str(models), str(out), *names],
        env={**os.environ, "PYTHONPATH": path, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE,
    )
    (out.parent / f"{out.name}.log").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return Runs(out)


def export_models(folder: Path) -> None:
    """Writes the bundled models with heads of 64, the smallest above theirs that attention on a CPU knows."""
    from spectrace_demo import draft_path, eagle3_path, target_path
    from spectrace_demo.export import export

    for source in (target_path(), draft_path(), eagle3_path()):
        export(source, folder / source.name)


def prompts(scenario: Any) -> list[str]:
    """Texts for a scenario."""
    from spectrace_demo import prompts as bundled

    texts = bundled()
    return [" ".join([texts[at % len(texts)]] * scenario.repeats) for at in range(scenario.num_prompts)]
