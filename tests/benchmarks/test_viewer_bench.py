"""The viewer's benchmark where it has a logic of its own: keys, screens, targets, markers. Times nothing."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import spectrace

pytest.importorskip("pyte")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
_ECHO = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"ready")
while b := os.read(0, 64):
    os.write(1, {})
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script of `benchmarks/` as another script does."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def _terminal(script: Any, answer: str, **options: Any) -> Any:
    return script("terminal").Terminal([sys.executable, "-c", _ECHO.format(answer)], environ={}, **options)


def test_names_of_keys_become_their_bytes(script: Any) -> None:
    """Whatever has no name is sent as it is, in one piece."""
    assert script("terminal").keys_of("/x<Enter>n<Down><PgDn>\x04") == b"/x\rn\x1b[B\x1b[6~\x04"


def test_a_reaction_is_what_came_after_the_key(script: Any) -> None:
    """Bytes before the key are not its own, and the screen says when it matched."""
    with _terminal(script, "b'[' + b + b']'") as terminal:
        assert terminal.wait_for("ready") > 0
        reaction = terminal.press("j", r"\[j\]", quiet=0.05)
        assert (reaction.data, reaction.num_bytes) == (b"[j]", 3)
        assert 0 < reaction.first <= reaction.last
        assert reaction.seen is not None
        assert terminal.press("k", "never", quiet=0.0, longest=0.1).seen is None


def test_what_was_there_before_anybody_asked_has_its_own_time(script: Any) -> None:
    """Waiting late does not make a program late."""
    with _terminal(script, "b") as terminal:
        terminal.press("", "ready", quiet=0.3)
        early = terminal.wait_for("ready")
        terminal.press("xyz", "xyz", quiet=0.05)
        assert terminal.wait_for("ready") == early
        assert terminal.wait_for("xyz") > early


def test_a_slow_line_is_read_no_faster(script: Any) -> None:
    """40,000 bits at 100,000 bits per second take what they take, less the first 4 KiB at most."""
    with _terminal(script, "b'x' * 5000", bits_per_second=100_000) as terminal:
        terminal.wait_for("ready")
        reaction = terminal.press("j", quiet=0.3)
        assert reaction.num_bytes == 5000
        assert reaction.last >= (40_000 - 8 * 4096) / 100_000


def test_a_program_that_asks_is_answered(script: Any) -> None:
    """Modes, device and cursor, however the question is cut."""
    asking = "b'\\x1b[?2026$p\\x1b[c\\x1b]11;?\\x07\\x1b[6n' if b == b'a' else b.replace(b'\\x1b', b'E')"
    with _terminal(script, asking) as terminal:
        terminal.wait_for("ready")
        shown = terminal.press("a", "R", quiet=0.2).data
        for answer in (b"E[?2026;2$y", b"E[?62;22c", b"E]11;rgb:", b"E[1;1R"):
            assert answer in shown


def test_the_end_is_timed_and_the_last_bytes_are_kept(script: Any) -> None:
    """A signal and a closed terminal both end a program that heeds them."""
    with _terminal(script, "b") as terminal:
        terminal.wait_for("ready")
        assert terminal.signal(15) < 5
        assert terminal.output.endswith(b"ready")
    with _terminal(script, "b") as terminal:
        terminal.wait_for("ready")
        assert terminal.hang_up() < 5


def test_the_screen_shows_what_pyte_does_not_know(script: Any) -> None:
    """Repeated characters, scrolled regions, device strings and escapes that are cut in two."""
    screen = script("screen").Screen(20, 4)
    screen.feed(b"one\r\ntwo\r\nx\x1b[3b\x1b[>4;1m\x1b[=5u\x1bP+q544e\x1b\\\x1b[?2026$p")
    assert screen.lines == ["one", "two", "xxxx", ""]
    screen.feed(b"\x1b[1;3r\x1b[1S\x1b[r")
    assert screen.lines == ["two", "xxxx", "", ""]
    screen.feed(b"\x1b[2T")
    assert screen.lines == ["", "", "two", "xxxx"]
    for piece in (b"\x1b[1;", b"1H\xe2\x94", b"\x80\x1b", b"[>1", b"u."):
        screen.feed(piece)
    assert screen.lines[0] == "─."


def test_colours_are_counted_by_depth(script: Any) -> None:
    """A shade within 256 or true colour is one colour, bold and reverse are none."""
    count = script("screen").colours_in
    assert dict(count(b"\x1b[1;7;31mx\x1b[0;38;5;31;48;2;31;32;33m\x1b[m\x1b[39;49m")) == {
        "16": 1,
        "256": 1,
        "true": 1,
    }


def test_targets_tell_missed_from_not_measured(script: Any) -> None:
    """A program that is not installed leaves its cells, and makes no target met or missed."""
    targets, runs = script("viewer_targets"), script("viewer_runs")
    samples = runs.Samples()
    samples.add(targets.OURS, "first screen", 0.2, 0.1, None, 0.3)
    samples.add("lnav", "first screen", 1.0)
    rows = targets.verdicts(targets.all_targets(samples), [])
    assert "| first useful paint of 1,000,000 steps / lnav | 0.20 x | < 1.00 x | yes |" in rows
    assert "| first readable rows / lnav | 0.20 x | ≤ 0.04 x | **no** |" in rows
    assert "| first readable rows / less | not measured | ≤ 6.00 x |  |" in rows
    table = targets.figures(samples, ["toolong"])
    assert "| first readable rows, ms | 200 |  |  | 1,000 |  | not installed |  |  |" in table


def test_the_key_that_is_slowest_is_named(script: Any) -> None:
    """The target is that of the slowest key, by its own p95."""
    targets, runs = script("viewer_targets"), script("viewer_runs")
    samples = runs.Samples()
    samples.add(targets.LONG, "key j", *[0.01] * 19, 0.9)
    samples.add(targets.LONG, "key \x04", *[0.06] * 20)
    row = next(row for row in targets.verdicts(targets.all_targets(samples), []) if "slowest of 22" in row)
    assert "900 ms (j;" in row
    assert row.endswith("**no** |")


def test_only_what_lies_between_the_markers_is_replaced(script: Any) -> None:
    """And a page without them, or with two pairs, is refused."""
    bench = script("bench_viewer")
    page = f"before\n{bench.BEGIN}\nold\n{bench.END}\nafter\n"
    assert bench.with_section(page, "new") == f"before\n{bench.BEGIN}\nnew\n{bench.END}\nafter\n"
    for wrong in ("none", page + page, f"{bench.END} {bench.BEGIN}"):
        with pytest.raises(SystemExit):
            bench.with_section(wrong, "new")
    bench.with_section(bench.README.read_text(encoding="utf-8"), "new")


def test_the_needle_lies_in_one_step_of_trace_and_lines(script: Any, tmp_path: Path) -> None:
    """Both say the same of every step, so that nobody searches in something else."""
    synthetic = script("synthetic")
    rows = 4 * synthetic.BATCH
    synthetic.write_long(tmp_path / "a.spectrace", rows, 150)
    synthetic.write_json_lines(tmp_path / "a.jsonl", rows, 150)
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line.pop("row") for line in lines] == list(range(rows))
    with spectrace.open(tmp_path / "a.spectrace") as trace:
        assert [row for row, step in enumerate(trace.steps) if step.request == synthetic.NEEDLE] == [150]
        found = [{name: getattr(step, name) for name in lines[0]} for step in trace.steps]
    assert lines == json.loads(json.dumps(found))
