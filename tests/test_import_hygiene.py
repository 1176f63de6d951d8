"""What an import may bring along, measured in a clean interpreter.

The contracts in pyproject.toml read the source; these tests see what really gets loaded, by way of
a dependency or a lazy import too. Every module under `spectrace/` is found and tested by itself.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import spectrace

ROOT = Path(spectrace.__file__).parent
ENGINES = frozenset({"sglang", "torch", "transformers", "vllm"})
DRAWING = frozenset({"rich", "textual"})


def _module_names() -> list[str]:
    """Every module of the package, by its file, without importing any."""
    files = (path.relative_to(ROOT.parent).with_suffix("") for path in ROOT.rglob("*.py"))
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in files)


def _loaded_by(*arguments: str) -> set[str]:
    """Run Python with these arguments and return the full name of every module that it loads."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 0, "\n".join(said)
    return set(re.findall(r"^import time:.*\|\s*([\w.]+)$", done.stderr, re.MULTILINE))


def _packages(modules: set[str]) -> set[str]:
    """The top-level packages among these modules."""
    return {name.partition(".")[0] for name in modules}


def _forbidden(module: str) -> frozenset[str]:
    """The packages that this module must not bring along."""
    if module.startswith("spectrace.tui"):
        return ENGINES
    return ENGINES | DRAWING


@pytest.mark.parametrize("module", _module_names())
def test_a_module_brings_only_what_its_room_may_use(module: str) -> None:
    """Importing a module loads no engine, and nothing that draws unless it is in the viewer."""
    loaded = _loaded_by("-c", f"import {module}")
    assert module in loaded
    assert not _packages(loaded) & _forbidden(module)


def test_help_is_answered_without_the_heavy_packages() -> None:
    """`spectrace --help` waits for neither Textual nor numpy, nor for an engine."""
    loaded = _loaded_by("-m", "spectrace", "--help")
    assert "spectrace.cli" in loaded
    assert not _packages(loaded) & (ENGINES | DRAWING | {"numpy"})


def test_the_viewer_starts_without_the_rules_of_the_diagnosis() -> None:
    """They take longer to load than the first screen, and are loaded when somebody asks for a cause."""
    loaded = _loaded_by("-c", "import spectrace.tui.app, spectrace.tui.viewer")
    assert "spectrace.tui.viewer" in loaded
    assert not [name for name in loaded if name.startswith("spectrace.analysis.diagnosis")]


def test_the_bundled_models_are_found_without_an_engine() -> None:
    """`spectrace_demo` says where its models are without loading torch, numpy or the viewer."""
    loaded = _packages(_loaded_by("-c", "import spectrace_demo"))
    assert "spectrace_demo" in loaded
    assert not loaded & (ENGINES | DRAWING | {"numpy"})


@pytest.mark.engine
@pytest.mark.parametrize(
    "recorder", ["spectrace_eagle3", "spectrace_loop", "spectrace_transformers.recorder"]
)
def test_a_recorder_brings_the_format_and_nothing_of_the_reading_side(recorder: str) -> None:
    """Importing a recorder into an engine's process loads no analysis, no viewer and no command."""
    loaded = _loaded_by("-c", f"import {recorder}")
    rooms = {name.split(".")[1] for name in loaded if name.startswith("spectrace.")}
    assert "format" in rooms
    assert not rooms & {"analysis", "cli", "testing", "tui"}


def test_no_module_is_called_recorders() -> None:
    """The folder `recorders/` is no package: a generic name would clash with other projects."""
    assert not (ROOT.parent / "recorders" / "__init__.py").exists()
