"""The overview names the cause of every fault sample, and says what ran and how it went."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import spectrace
from spectrace import TraceWriter
from spectrace.analysis.acceptance import accept_length
from spectrace.analysis.diagnosis import diagnose
from spectrace.analysis.series import EXACT_ROWS
from spectrace.testing import write_trace
from tests.tui.pages.showing import flat, lines_of, shown
from tests.tui.traces import made_step

FAULTS = {
    "eagle3-map-as-direct": "vocab-map/offset-read-as-direct",
    "eagle3-taps-shifted": "tap-layer/shifted",
    "eagle3-taps-normed": "tap-form/norm",
    "eagle3-no-midlayer": "weights/not-loaded",
    "eagle3-feedback-normed": "tap-form/feedback-norm",
    "eagle3-draft-kv-kept": "kv-state/not-trimmed",
    "eagle3-positions-shifted": "positions/shifted",
    "eagle3-random-head": "draft-head/not-loaded",
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_cause_stands_at_the_top(name: str, sample_traces: Path) -> None:
    """The fault that was put into a sample is the first finding, with its strength as a word."""
    strength, id_ = shown("overview", sample_traces / f"{name}.spectrace").splitlines()[1].split()
    assert id_ == FAULTS[name]
    assert strength in ("certain", "strong", "hint")


PAGES = {
    "eagle3-map-as-direct": ("V", "vocabulary", 1),
    "eagle3-taps-shifted": ("H", "taps", 0),
    "eagle3-taps-normed": ("H", "taps", 0),
    "eagle3-feedback-normed": ("H", "taps", 1),
    "eagle3-draft-kv-kept": ("s", "step", 2),
    "eagle3-positions-shifted": ("s", "step", 1),
    "eagle3-random-head": ("s", "step", 1),
    "vllm-v1-layers-as-outputs": ("H", "taps", None),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_finding_says_which_screen_shows_it(name: str, sample_traces: Path) -> None:
    """Every line of a finding leads to that page, at its first witness where it has one."""
    key, page, row = PAGES[name]
    lines = lines_of("overview", sample_traces / f"{name}.spectrace")
    assert {(line.page, line.row) for line in lines[1:5]} == {(page, row)}
    assert f"{key} shows it, Enter goes there" in flat("overview", sample_traces / f"{name}.spectrace")
    assert lines[1].word.endswith(f": {key} shows it")


def test_weights_that_are_missing_are_shown_by_no_screen(sample_traces: Path) -> None:
    """The finding itself says everything: its lines lead nowhere."""
    lines = lines_of("overview", sample_traces / "eagle3-no-midlayer.spectrace")
    assert {(line.page, line.row) for line in lines[1:5]} == {("", None)}


def test_the_first_finding_has_its_numbers(sample_traces: Path) -> None:
    """Evidence stands below the cause, shares with their interval and n."""
    text = flat("overview", sample_traces / "eagle3-map-as-direct.spectrace")
    assert re.search(r"ids mapped directly: 1\.000 \(0\.98\d-1\.000\), (\d+) of \1", text)


def test_no_finding_is_not_called_health(sample_traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is found the page says that this proves nothing, and what could not be checked."""
    monkeypatch.setattr(
        "spectrace.tui.pages.outcomes.diagnose",
        lambda trace, **options: replace(diagnose(trace, **options), findings=[]),
    )
    text = flat("overview", sample_traces / "eagle3.spectrace")
    assert "Nothing found. That is no proof of health" in text
    assert "cleared tap-layer: each tap matches its boundary" in text
    assert "open cost/below-break-even: no baseline.token_ns; record times" in text


@pytest.mark.parametrize("name", ["eagle3", "eagle3-tree", "draft-greedy", "draft-sampled", "killed"])
def test_where_nothing_is_found_that_stands_first(name: str, sample_traces: Path) -> None:
    """The first line under the heading is the verdict of `spectrace diagnose`, not a hint of few steps."""
    text = shown("overview", sample_traces / f"{name}.spectrace", width=100).splitlines()
    assert re.match(r"Nothing found\. That is no proof of health: \d+ cleared, \d+ could not", text[1])
    assert any(line.startswith("hint     workload/too-small") for line in text[2:])


def test_nothing_found_of_a_weak_draft_says_what_to_do(sample_traces: Path) -> None:
    """The same next test as `spectrace diagnose`."""
    text = flat("overview", sample_traces / "draft-greedy.spectrace")
    assert "next spectrace record --target T --control self-draft" in text


def test_metrics_say_what_they_count(sample_traces: Path) -> None:
    """Accept length says that the target's own token is in it, every position has its counts."""
    path = sample_traces / "eagle3.spectrace"
    text = flat("overview", path)
    with spectrace.open(path) as trace:
        counts = trace.counts
    first, proposals = counts.accepted_at[0], counts.proposals
    assert f"accept length {accept_length(counts):.3f} 1 + accepted / proposals, bonus included" in text
    assert f"alpha1 {first / proposals:.3f}" in text
    assert f"{first / proposals:.1%}".replace("%", " %") + f" {first} of {proposals} c" in text
    assert "highest 5.00 tokens per step" in text


def test_the_header_in_words(sample_traces: Path) -> None:
    """Engine, models, draft size, verification and sampling stand on the page."""
    text = flat("overview", sample_traces / "eagle3-tree.spectrace", width=200)
    assert "engine spectrace_eagle3 0.1.0" in text
    assert "target spectrace_demo/target, vocabulary 1,280, 8 layers, 192 wide" in text
    assert "trees: top-k 4, depth 4, nodes 12" in text
    assert "verification greedy, keeps the target's distribution" in text
    assert "sampling temperature 0" in text


def test_what_the_recorder_could_not_get_has_its_reason(sample_traces: Path) -> None:
    """A field that the engine hides is listed with the recorder's reason."""
    text = flat("overview", sample_traces / "draft-sampled.spectrace")
    assert "draft_positions: transformers does not report where the draft was run" in text


def test_lost_and_unclosed_are_said(sample_traces: Path, tmp_path: Path) -> None:
    """A trace without an end says so, and steps that were dropped are counted with the reason."""
    assert "state ended without closing" in flat("overview", sample_traces / "killed.spectrace")
    path = tmp_path / "gap.spectrace"
    with TraceWriter(path, {}, strict=True) as writer:
        writer.step(made_step(0))
        writer.gap(lost=7, reason="queue full")
    assert "lost 7 steps: queue full" in flat("overview", path)


def test_the_course_of_a_long_trace_comes_from_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More steps than are looked at one by one are drawn from groups, without reading them."""
    path = write_trace(tmp_path / "long.spectrace", ({"step": row} for row in range(EXACT_ROWS + 1)))
    monkeypatch.setattr("spectrace.analysis.series._rows", None)
    assert "lowest 1.00, highest 1.00 tokens per step" in flat("overview", path)
