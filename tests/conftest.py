"""The same surroundings for every test, on every machine.

Owns environment, Hypothesis profiles and the `engine` marker; the fixtures of one room live beside
its tests.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

# Before anything imports torch or transformers: tiny models run fastest on one thread, and no test
# may reach for a model hub.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

# Deadlines measure the machine. In CI the examples are the same on every run; locally they vary.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `engine` where the engine is not installed."""
    if item.get_closest_marker("engine") is None:
        return
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: pip install -e '.[transformers]'")


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test 80 columns and no wish about colour."""
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")


@pytest.fixture(scope="session")
def sample_traces() -> Path:
    """Return the folder of the committed traces."""
    return Path(__file__).parent.parent / "sample_traces"
