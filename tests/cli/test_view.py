"""`spectrace view`: opens the viewer on a terminal, and is useful without one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spectrace.cli.view
import spectrace.tui.app

if TYPE_CHECKING:
    from tests.cli.conftest import Run


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Pretend to sit at a terminal, and collect what the viewer is asked to show."""
    calls: list[dict[str, Any]] = []

    def fake(trace: spectrace.Trace, **options: Any) -> None:
        calls.append({"steps": len(trace.steps), **options})

    monkeypatch.setattr(spectrace.cli.view, "is_terminal", lambda: True)
    monkeypatch.setattr(spectrace.tui.app, "run", fake)
    return calls


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["view", "run.spectrace"], {}),
        (["run.spectrace"], {}),
        (["./run.spectrace", "--at", "7"], {"at": 7}),
        (["view", "--follow", "run.spectrace"], {"follow": True}),
        (["."], {}),
        (["run.spectrace", "--first", "--screen", "overview"], {"first": True, "screen": "overview"}),
        (
            ["run.spectrace", "--against", "./run.spectrace"],
            {"screen": "diff", "against": (Path("run.spectrace"),)},
        ),
    ],
)
def test_the_viewer_opens_on_a_terminal(
    trace: Path, run: Run, opened: list[dict[str, Any]], arguments: list[str], options: dict[str, Any]
) -> None:
    """A path alone is enough; the viewer is told where to begin and whether to follow."""
    found = run(*arguments)
    assert (found.code, found.out, found.err) == (0, "", "")
    usual = {"at": None, "first": False, "screen": "", "follow": False, "against": ()}
    assert opened == [{"steps": 16, **usual, **options}]


def test_without_a_terminal_the_summary_is_printed(trace: Path, run: Run) -> None:
    """In a pipe `view` prints what `stats` prints, and one line of hint that is no data."""
    found = run("view", "run.spectrace")
    assert found.code == 0
    assert found.out == run("stats", "run.spectrace").out
    assert len(found.err.splitlines()) == 1
    assert "spectrace steps" in found.err


@pytest.mark.parametrize("term", ["", "dumb", "unknown"])
def test_a_terminal_that_cannot_place_text_is_none(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    """An Emacs shell or a CI log is a terminal by name only."""
    monkeypatch.setenv("TERM", term)
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    assert not spectrace.cli.view.is_terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    assert spectrace.cli.view.is_terminal()
