"""The one line that a reader sees the first time, and never again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

TIP = "f: first rejection  o: why  ?: every key  (said once)"


def tip_path() -> Path:
    """The file that says it was shown."""
    from platformdirs import user_state_path

    return user_state_path("spectrace", appauthor=False) / "tip-shown"


def first_tip(path: Path) -> str:
    """The tip the first time, then ""; a place that cannot be written is no failure: nothing is said."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("x").close()
        return TIP
    return ""
