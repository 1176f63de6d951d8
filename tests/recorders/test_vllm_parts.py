"""Parts of the vLLM recorder that need neither vLLM nor torch: settings, and names of a checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spectrace.errors import UsageError
from spectrace_serving.settings import Settings, from_environment
from spectrace_vllm import register


def test_nothing_is_recorded_unless_a_folder_is_named() -> None:
    """Without SPECTRACE_OUT there are no settings."""
    assert from_environment({"SPECTRACE_CAPTURE": "ids"}) is None


def test_every_variable_is_read(tmp_path: Path) -> None:
    """The five variables say folder, level, choice and budget."""
    found = from_environment(
        {
            "SPECTRACE_OUT": str(tmp_path),
            "SPECTRACE_CAPTURE": "ids",
            "SPECTRACE_SAMPLE": "1/4",
            "SPECTRACE_MAX_BYTES": "2M",
        }
    )
    assert found == Settings(out=tmp_path, is_full=False, every=4, max_bytes=2 << 20)


def test_a_share_is_chosen_by_name(tmp_path: Path) -> None:
    """About the share asked for, the same requests every time."""
    settings = Settings(out=tmp_path, share=0.25)
    taken = [settings.takes(0, f"request-{number}") for number in range(4000)]
    assert taken == [settings.takes(7, f"request-{number}") for number in range(4000)]
    assert 0.2 < sum(taken) / len(taken) < 0.3


@pytest.mark.parametrize("text", ["0", "-1", "1/", "1/-2", "nan", "1e9", "half"])
def test_a_choice_that_means_nothing_is_refused(text: str, tmp_path: Path) -> None:
    """The sentence names the variable and what it said."""
    with pytest.raises(UsageError, match="SPECTRACE_SAMPLE"):
        from_environment({"SPECTRACE_OUT": str(tmp_path), "SPECTRACE_SAMPLE": text})


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
