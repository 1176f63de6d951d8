"""Real engines of SGLang, once per session: see tests/recorders/serving_runs.py.

Skipped, with the reason, where SGLang is not installed: `make test-engines` builds an environment with it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.recorders.checkpoint_faults import break_head
from tests.recorders.serving_runs import Runs, export_models, need, run_child
from tests.recorders.sglang import scenarios
from tests.recorders.sglang.faults import FAULTS

# Scripts: importing them sets up an engine's process.
collect_ignore = ["child.py"]
_IS_THERE = find_spec("sglang") is not None
"""Looked at before any test runs: some put a stand-in of this name in its place."""
_HERE = Path(__file__).parent
_CHILD = _HERE / "child.py"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips loudly where there is no SGLang."""
    if _HERE in item.path.parents:
        need("sglang", _IS_THERE)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled models and heads of other methods, with what SGLang wants in another form."""
    from tests.recorders.serving_drafts import write_heads
    from tests.recorders.sglang.heads import write_for_sglang

    folder = tmp_path_factory.mktemp("models")
    export_models(folder)
    write_heads(folder)
    write_for_sglang(folder)
    return folder


@pytest.fixture(scope="session")
def runs(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Healthy runs."""
    return run_child(_CHILD, models, tmp_path_factory.mktemp("runs") / "sglang", scenarios.TESTED)


@pytest.fixture(scope="session")
def faulty(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs with one fault each."""
    for name, (edit, _) in FAULTS.items():
        break_head(models / "eagle3", models / f"eagle3-{name}", edit)
    return run_child(_CHILD, models, tmp_path_factory.mktemp("runs") / "sglang-faults", list(FAULTS))
