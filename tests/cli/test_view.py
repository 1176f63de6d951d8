"""`spectrace view`: opens the viewer on a terminal, and is useful without one."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from types import ModuleType
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


@pytest.mark.parametrize("term", ["", "dumb", "unknown", "vt100"])
def test_a_terminal_that_cannot_place_text_is_none(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    """An Emacs shell or a CI log is a terminal by name only."""
    monkeypatch.setenv("TERM", term)
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    assert not spectrace.cli.view.is_terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    assert spectrace.cli.view.is_terminal()


SCREENS = ("steps", "overview", "step", "tree", "taps", "vocabulary", "requests", "help")


@pytest.mark.parametrize("screen", SCREENS)
def test_every_screen_is_printed_as_plain_lines(trace: Path, run: Run, screen: str) -> None:
    """For screen readers and dumb terminals: the same words, no escape, no rule of dashes."""
    found = run("view", "run.spectrace", "--plain", "--screen", screen, "--at", "3")
    assert (found.code, found.err) == (0, "")
    assert len(found.out.splitlines()) > 5
    assert "─" not in found.out
    assert all(line.isprintable() for line in found.out.splitlines())


def test_plain_steps_begin_where_they_are_asked_to(trace: Path, run: Run) -> None:
    """The cursor and the step below the list are those of --at, or of the first rejection."""
    assert "\n>   7 " in run("view", "run.spectrace", "--plain", "--at", "7").out.replace(">    7", ">   7")
    first = run("view", "run.spectrace", "--plain", "--first").out
    assert first.split("\nstep ")[1].startswith("2 ")


def test_a_screen_that_is_none_is_named_with_those_there_are(trace: Path, run: Run) -> None:
    """A misspelt id costs one look."""
    for extra in (["--plain"], ["--screenshot", "out.svg"]):
        found = run("view", "run.spectrace", "--screen", "overveiw", *extra)
        assert found.code == 2
        assert "overview" in found.err


def test_a_picture_of_any_screen_is_saved_without_a_terminal(
    trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVG with the words of the screen; COLUMNS and LINES set its size."""
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setenv("LINES", "30")
    for screen, words in (("steps", "step&#160;5/16"), ("overview", "Overview"), ("help", "Help")):
        found = run("view", "run.spectrace", "--at", "5", "--screen", screen, "--screenshot", f"{screen}.svg")
        assert (found.code, found.out, found.err) == (0, "", "")
        text = Path(f"{screen}.svg").read_text(encoding="utf-8")
        assert text.startswith("<svg")
        assert words in text.replace("&#x27;", "'")
    assert run("view", "run.spectrace", "--screenshot", "nowhere/out.svg").code == 2


def test_the_keys_are_printed_with_a_readers_own(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids for the file, keys as they are printed on a keyboard; no trace is needed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("spectrace.tui.keymap.keymap_path", lambda: tmp_path / "keys.toml")
    (tmp_path / "keys.toml").write_text('hunt.first = "x"\n')
    found = run("view", "--keys")
    assert found.code == 0
    lines = {line.split()[0]: line for line in found.out.splitlines()}
    assert lines["hunt.first"].split()[1:3] == ["x", ":first"]
    assert lines["screen.overview"].split()[1] == "o"
    assert "keys.toml" in found.err
    assert run("view").code == 2


def test_browsers_are_served_on_the_loopback_interface_only(
    trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each browser runs `view` with these options; without the extra, the sentence."""
    calls: list[tuple[str, str, int]] = []

    class Server:
        def __init__(self, command: str, *, host: str, port: int, title: str) -> None:
            calls.append((command, host, port))

        def serve(self) -> None: ...

    module = ModuleType("textual_serve.server")
    module.Server = Server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "textual_serve", ModuleType("textual_serve"))
    monkeypatch.setitem(sys.modules, "textual_serve.server", module)
    assert run("view", "run.spectrace", "--serve", "--at", "2", "--port", "8123").code == 0
    command, host, port = calls[0]
    assert (host, port) == ("127.0.0.1", 8123)
    assert shlex.split(command)[1:] == ["-m", "spectrace", "view", "--at", "2", "--", "run.spectrace"]
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    found = run("view", "run.spectrace", "--serve")
    assert found.code == 2
    assert "spectrace-tui[serve]" in found.err


@pytest.mark.parametrize("extra", [["--plain"], ["--screenshot", "out.svg"], ["--serve"], []])
def test_a_bad_second_trace_or_screen_ends_every_way_of_viewing(
    trace: Path, run: Run, extra: list[str]
) -> None:
    """Unreadable is one, a path or a screen that is none is two; nothing is shown or written."""
    Path("letter").write_text("Dear Sir or Madam,\n")
    for options, code in (
        (("--against", "letter"), 1),
        (("--against", "nowhere"), 2),
        (("--screen", "nosuch"), 2),
    ):
        found = run("view", "run.spectrace", *options, *extra)
        assert (found.code, found.out) == (code, "")
        assert options[1] in found.err
    assert not Path("out.svg").exists()


@pytest.mark.parametrize(
    "options", ["--plain --serve", "--plain --screenshot o.svg", "--serve --screenshot o.svg"]
)
def test_one_way_of_viewing_at_a_time(trace: Path, run: Run, options: str) -> None:
    """Two that exclude each other are a usage error."""
    found = run("view", "run.spectrace", *options.split())
    assert (found.code, found.out) == (2, "")
    assert found.err == "spectrace: give one of --plain, --screenshot and --serve\n"
