"""Two traces side by side: first differences with the way to them, taps, acceptance, headers."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spectrace
from spectrace import TraceWriter
from spectrace.analysis import comparison
from spectrace.testing import write_trace
from spectrace.tui.loader import Loader
from spectrace.tui.pages import PageLine, diff
from spectrace.tui.spans import text_of
from tests import strategies
from tests.tui.pages.showing import check_lines, flat
from tests.tui.traces import make_trace


def _lines(a: Path, b: Path, row: int = 0, width: int = 80) -> list[PageLine]:
    with spectrace.open(a) as trace:
        return diff.lines(diff.gather(Loader(trace, against=[b]), row), width)


def _flat(a: Path, b: Path, row: int = 0, width: int = 80) -> str:
    return " ".join(" ".join(text_of(line.spans) for line in _lines(a, b, row, width)).split())


def test_a_shifted_layer_is_seen_in_the_taps(sample_traces: Path) -> None:
    """The taps say whose boundary is whose, and the advice is at the top."""
    text = _flat(sample_traces / "eagle3.spectrace", sample_traces / "eagle3-taps-shifted.spectrace", 1)
    assert "next The drafts are fed other states" in text
    assert "B's B(2), B(4), B(5) match A's B(3), B(5), B(6): one layer later" in text
    assert 'r0: A raw 271→695 " box" | B raw 499→1095 " kite"' in text
    assert re.search(r"alpha1 0\.\d+ 0\.\d+ -0\.\d+ -0\.\d+ to \+0\.\d+", text)
    assert "headers ──" in text


def test_what_an_engine_was_told_to_accept_is_said_to_be_left_out(tmp_path: Path) -> None:
    """Simulated proposals of one trace make no change of acceptance, and the page says how many there are."""
    told = [{"request": "r0", "step": n, "flags": ["simulated"]} for n in range(3)]
    real = [{**step, "flags": []} for step in told]
    text = _flat(write_trace(tmp_path / "a", real), write_trace(tmp_path / "b", told))
    assert "at rates that it was given. Left out: 3 proposals of B." in text


def test_a_map_read_otherwise_is_seen_in_headers_and_ids(sample_traces: Path) -> None:
    """The same raw id with another target id, and the header's word for it."""
    text = _flat(sample_traces / "eagle3.spectrace", sample_traces / "eagle3-map-as-direct.spectrace", 1)
    assert 'A raw 73→293 " was" | B raw 73→220' in text
    assert "map read as: A offset | B direct" in text
    assert re.search(r"alpha1 (0\.\d+) 0\.000 -\1 -0\.\d+ to -0\.\d+ differs", text)


def test_steps_stand_side_by_side_and_lead_on(sample_traces: Path) -> None:
    """The step under the cursor, the one of B beside it, and the next step that differs."""
    lines = _lines(sample_traces / "eagle3.spectrace", sample_traces / "eagle3-taps-shifted.spectrace", 1)
    texts = [text_of(line.spans) for line in lines]
    own, other = (next(text for text in texts if text.startswith(f"{side}      1")) for side in "AB")
    assert "= small = box" in own
    assert "x kite→ box" in other
    assert [line.row for line in lines if text_of(line.spans).startswith("next difference")] == [2]


def test_equal_traces_differ_in_nothing(sample_traces: Path) -> None:
    """A trace beside itself."""
    path = sample_traces / "draft-greedy.spectrace"
    text = _flat(path, path, 3)
    assert "differs nothing that was compared" in text
    assert "No difference that bears on the run." in text
    assert "next difference" not in text


def test_no_other_trace_says_how_to_give_one(sample_traces: Path) -> None:
    """Without a second trace the page names the option."""
    assert "spectrace view A --against FILE" in flat("diff", sample_traces / "eagle3.spectrace")


def test_a_trace_that_is_gone_is_said(sample_traces: Path, tmp_path: Path) -> None:
    """The page says that there is nothing to compare with."""
    text = _flat(sample_traces / "eagle3.spectrace", tmp_path / "gone.spectrace", width=200)
    assert "gone.spectrace: cannot be read" in text


def test_what_has_no_prompt_in_common_is_said(sample_traces: Path, tmp_path: Path) -> None:
    """Where no request can be paired, the page says so and compares the headers."""
    other = write_trace(tmp_path / "t.spectrace", [], run={"method": "mtp"})
    text = _flat(sample_traces / "eagle3.spectrace", other, width=200)
    assert "method: A eagle3 | B mtp" in text
    assert "acceptance ──" not in text


def test_both_are_read_once(sample_traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moving the cursor compares nothing again."""
    calls = []

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return comparison.compare(*args, **options)

    monkeypatch.setattr("spectrace.tui.pages.diff.compare", counted)
    with spectrace.open(sample_traces / "eagle3.spectrace") as trace:
        loader = Loader(trace, against=[sample_traces / "eagle3-taps-shifted.spectrace"])
        for row in range(4):
            diff.gather(loader.stoppable(Event()), row)
    assert len(calls) == 1


@pytest.mark.parametrize("width", [20, 39, 40, 80, 120, 200])
def test_every_width_fits(width: int, sample_traces: Path) -> None:
    """No line is wider than asked for."""
    a, b = sample_traces / "draft-greedy.spectrace", sample_traces / "prompt-lookup.spectrace"
    check_lines(_lines(a, b, 5, width), width, 51)


def test_empty_and_hostile_traces(tmp_path: Path) -> None:
    """No step, hostile names: no exception and no control character."""
    bad = "\x1b[2J\n\u202e"
    a = make_trace(tmp_path / "a.spectrace", 5, request=bad, texts=dict.fromkeys(range(90, 120), bad))
    b = make_trace(tmp_path / "b.spectrace", 5, request=bad, num_accepted=0, final_kind=bad)
    empty = make_trace(tmp_path / "empty.spectrace", 0)
    for one, other, total in ((a, b, 5), (a, empty, 5), (empty, a, 0)):
        check_lines(_lines(one, other, 0, 60), 60, total)


@given(
    run=strategies.runs,
    steps=st.lists(strategies.steps(), max_size=4),
    other=st.lists(strategies.steps(), max_size=4),
    width=st.integers(20, 200),
)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_any_two_traces_have_a_page(
    tmp_path_factory: pytest.TempPathFactory,
    run: dict[str, Any],
    steps: list[dict[str, Any]],
    other: list[dict[str, Any]],
    width: int,
) -> None:
    """Whatever two traces hold, the page fits and a terminal can take it."""
    folder = tmp_path_factory.mktemp("two")
    for name, given_steps in (("a", steps), ("b", other)):
        with TraceWriter(folder / f"{name}.spectrace", run) as writer:
            for step in given_steps:
                writer.step(step)
    with spectrace.open(folder / "a.spectrace") as trace:
        total = len(trace)
    check_lines(_lines(folder / "a.spectrace", folder / "b.spectrace", 0, width), width, total)


def test_what_the_draft_was_run_with_has_its_values(sample_traces: Path) -> None:
    """The step under the cursor says which value differs, A before B."""
    other = sample_traces / "eagle3-draft-kv-kept.spectrace"
    text = _flat(sample_traces / "eagle3.spectrace", other, row=2, width=120)
    assert "differs draft KV 18 | 21 next difference" in text
