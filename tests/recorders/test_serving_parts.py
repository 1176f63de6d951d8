"""Parts that recorders of serving engines share and that need neither an engine nor torch: settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from spectrace.errors import UsageError
from spectrace_serving.settings import Settings, from_environment


def test_nothing_is_recorded_unless_a_folder_is_named() -> None:
    """Without SPECTRACE_OUT there are no settings."""
    assert from_environment({"SPECTRACE_CAPTURE": "ids"}) is None


def test_every_variable_is_read(tmp_path: Path) -> None:
    """The variables say folder, level, choice and budget."""
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
