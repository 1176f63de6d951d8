"""Real engines of vLLM, once per session and runner: see tests/recorders/serving_runs.py.

Skipped, with the reason, where vLLM is not installed: `make test-engines` builds an environment that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.recorders.checkpoint_faults import break_head
from tests.recorders.serving_runs import Runs, export_models, need, run_child
from tests.recorders.triton_interpreter import ENVIRONMENT
from tests.recorders.vllm import scenarios
from tests.recorders.vllm.faults import FAULTS

# Scripts: importing them sets up an engine's process.
collect_ignore = ["child.py", "interpreted"]
_IS_THERE = find_spec("vllm") is not None
"""Looked at before any test runs: some put a stand-in of this name in its place."""
_HERE = Path(__file__).parent
CHILD = _HERE / "child.py"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips loudly where there is no vLLM."""
    if _HERE in item.path.parents:
        need("vllm", _IS_THERE)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled models, and heads of other methods."""
    from tests.recorders.serving_drafts import write_heads

    folder = tmp_path_factory.mktemp("models")
    export_models(folder)
    write_heads(folder)
    return folder


@pytest.fixture(scope="session")
def runners(
    request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Future[Runs]]:
    """The child of each runner that a test of this session asks for, both at once: each keeps a core busy."""
    folder, pool = tmp_path_factory.mktemp("runs"), ThreadPoolExecutor()
    wanted = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    return {
        name: pool.submit(run_child, CHILD, models, folder / name, names, environment)
        for name, names, environment in (("v1", scenarios.V1, {}), ("v2", scenarios.V2, ENVIRONMENT))
        if name in wanted
    }


@pytest.fixture(scope="session")
def v1(runners: Mapping[str, Future[Runs]]) -> Runs:
    """Runs of vLLM's V1 runner."""
    return runners["v1"].result()


@pytest.fixture(scope="session")
def v2(runners: Mapping[str, Future[Runs]]) -> Runs:
    """Runs of vLLM's V2 runner, its kernels interpreted."""
    return runners["v2"].result()


@pytest.fixture(scope="session")
def faulty(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs of vLLM's V1 runner with one fault each."""
    for name, fault in FAULTS.items():
        break_head(models / "eagle3", models / f"eagle3-{name}", fault.edit)
    return run_child(CHILD, models, tmp_path_factory.mktemp("runs") / "faults", [*FAULTS, "sampled"])
