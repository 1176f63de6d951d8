"""The vLLM recorder's plugin, which needs neither vLLM nor torch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spectrace_vllm import register


def test_registering_without_a_folder_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called in every process of vLLM, most of which record nothing."""
    monkeypatch.delenv("SPECTRACE_OUT", raising=False)
    before = set(sys.modules)
    register()
    assert not {name for name in set(sys.modules) - before if name.split(".")[0] in ("vllm", "torch")}


def test_registering_without_vllm_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine starts all the same, and the log says what to type."""
    monkeypatch.setenv("SPECTRACE_OUT", str(tmp_path))
    monkeypatch.setitem(sys.modules, "vllm", None)
    register()
    assert "spectrace doctor" in caplog.text
