"""What a report answers, how long it may get, and that its plots say nothing of the machine."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import spectrace
from spectrace.analysis.curves import curves
from spectrace.cli import main
from spectrace.report.command import command_line
from spectrace.report.document import document
from spectrace.report.markdown import MAX_CHARACTERS, markdown, prose
from spectrace.report.plots import plots
from spectrace.testing import write_trace

SECTIONS = [
    "In short",
    "What ran",
    "On what",
    "How much was accepted",
    "Where it falls off",
    "Diagnosis",
    "First divergent steps",
    "Not checked",
    "The trace",
]
"""In the order in which maintainers ask."""


def report(trace: Path, out: Path, *options: str) -> str:
    """A report, written by the command."""
    assert main(["report", str(trace), "-o", str(out), *options]) == 0
    return out.read_text(encoding="utf-8")


def test_questions_come_in_the_order_of_the_maintainers(sample_traces: Path, tmp_path: Path) -> None:
    """What ran stands before the numbers, the numbers before the diagnosis, and every rule has its say."""
    text = report(sample_traces / "eagle3-map-as-direct.spectrace", tmp_path / "r.md")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert "Found, certain: vocab-map/offset-read-as-direct." in text
    assert "| accept length | 1.000 | 1 + accepted / proposals |" in text
    assert re.search(r"\| numeric-tie \| needs a second trace", text)


def test_a_small_workload_is_no_cause(sample_traces: Path, tmp_path: Path) -> None:
    """The first section of a healthy run says what `diagnose` says first."""
    text = report(sample_traces / "eagle3.spectrace", tmp_path / "r.md").split("## What ran")[0]
    assert "Nothing found. That is no proof of health" in text
    assert "too-small" not in text


@pytest.mark.parametrize("name", ["vllm-v1-eagle3", "sglang-eagle3"])
def test_the_command_that_recorded_it_is_told_whole(sample_traces: Path, tmp_path: Path, name: str) -> None:
    """However long it is, in both forms."""
    with spectrace.open(sample_traces / f"{name}.spectrace") as trace:
        line = command_line(trace.run)
    assert line is not None
    end = line[-60:]  # what is redacted stands before it
    assert f"{end}\n" in report(sample_traces / f"{name}.spectrace", tmp_path / "r.md")
    assert html.escape(end) in report(sample_traces / f"{name}.spectrace", tmp_path / "r.html")


def test_a_page_says_what_the_markdown_says(sample_traces: Path, tmp_path: Path) -> None:
    """Both forms have the same sections."""
    text = report(sample_traces / "eagle3.spectrace", tmp_path / "r.html")
    assert re.findall(r"<h2>(.*?)</h2>", text) == SECTIONS


def test_private_text_is_in_no_report_by_default(sample_traces: Path, tmp_path: Path) -> None:
    """Tokens are shown when asked for, and only then."""
    sample = sample_traces / "draft-greedy.spectrace"
    assert "lantern" not in report(sample, tmp_path / "a.md") + report(sample, tmp_path / "a.html")
    assert "lantern" in report(sample, tmp_path / "b.md", "--include", "text")


def test_a_report_always_fits_an_issue(tmp_path: Path) -> None:
    """However much a trace says, the Markdown has fewer characters than an issue takes."""
    word = "word*" * 300
    steps = [
        {
            "request": f"{n} {word}",
            "step": n,
            "proposal_ids": list(range(256)),
            "emitted_ids": [7],
            "final_kind": f"{word}{n}",
            "segment": f"{word}{n}",
        }
        for n in range(300)
    ]
    run = {
        "engine": {"name": word, "flags": {f"{word}{n}": word for n in range(100)}},
        "draft": {"parameters": {"missing": [f"{word}{n}" for n in range(100)]}},
        "sampling": {"processors": [word] * 100},
    }
    trace = write_trace(tmp_path / "run.spectrace", steps, run=run)
    text = report(trace, tmp_path / "r.md", "--include", "text", "--include", "paths")
    assert 1000 < len(text) < MAX_CHARACTERS


def test_sections_without_room_are_named(sample_traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the limit is reached, whole sections go and the report says which."""
    with spectrace.open(sample_traces / "eagle3.spectrace") as trace:
        whole = document(trace, name="a.zip")
    monkeypatch.setattr("spectrace.report.markdown.MAX_CHARACTERS", 5000)
    text = markdown(whole)
    assert len(text) <= 5000
    assert text.splitlines()[-1].startswith("Left out, there is no room in an issue: ")


def test_an_empty_trace_has_a_report(tmp_path: Path) -> None:
    """A trace without a step is reported as such, in both forms."""
    trace = write_trace(tmp_path / "run.spectrace")
    assert "holds no proposal" in report(trace, tmp_path / "r.md")
    assert "holds no proposal" in report(trace, tmp_path / "r.html")


def test_plots_are_the_same_twice_and_name_nothing(sample_traces: Path) -> None:
    """A plot is drawn byte by byte alike, without a date, a path or a name of its maker."""
    pytest.importorskip("matplotlib")
    with spectrace.open(sample_traces / "eagle3.spectrace") as trace:
        page = document(trace, name="a.zip")
    first, second = plots(page), plots(page)
    assert first == second
    assert len(first) == 3
    for _, svg in first:
        assert not re.search(r"Matplotlib v|<metadata|<!--|\d{4}-\d\d-\d\d|/home|/usr", svg)


def test_a_page_without_matplotlib_says_so(
    sample_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the extra the page is written without plots, and stderr says how to get them."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = report(sample_traces / "eagle3.spectrace", tmp_path / "r.html")
    assert "<svg" not in text
    assert "pip install 'spectrace-tui[report]'" in capsys.readouterr().err


def test_matplotlib_is_loaded_for_plots_only() -> None:
    """The command without a page loads no plotting library."""
    code = "import sys, spectrace.cli.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_other_suffixes_are_refused(sample_traces: Path, tmp_path: Path) -> None:
    """A report is Markdown or HTML."""
    assert main(["report", str(sample_traces / "eagle3.spectrace"), "-o", str(tmp_path / "r.pdf")]) == 2


@pytest.mark.parametrize("word", ["a|b", "`", "``x`", "<b>", "@me", "#1", "a_b", "$x$", ":tada:", "www.x.y"])
def test_words_that_markdown_would_read_stand_in_code(word: str) -> None:
    """A word with a meaning to Markdown is fenced, with a fence longer than what it holds."""
    fence = re.match(r"`+", prose(word, 100))
    assert fence
    assert fence.group() not in word
    assert prose(f"see {word}, or", 100).startswith("see `")


def test_curves_add_up(tmp_path: Path) -> None:
    """Every proposal is in exactly one bin of each curve, with its accept length."""
    rng = np.random.default_rng(3)
    steps = [
        {
            "step": n,
            "position": int(p),
            "batch_row": n % 5,
            "num_accepted": int(a),
            "segment": "think" if n % 3 else "answer",
        }
        for n, (p, a) in enumerate(zip(rng.integers(0, 5000, 500), rng.integers(0, 4, 500)))
    ]
    with spectrace.open(write_trace(tmp_path / "run.spectrace", steps)) as trace:
        drawn, counts = curves(trace), trace.counts
    for bins in (drawn.over_time, drawn.by_context, drawn.by_row):
        assert sum(b.accept_length.count for b in bins) == counts.proposals
        assert sum(b.accept_length.total for b in bins) == counts.proposals + counts.accepted
    assert set(drawn.by_segment) == {"think", "answer"}
    assert sum(mean.total for mean in drawn.by_segment.values()) == counts.proposals + counts.accepted
    assert [b.start for b in drawn.by_row] == [0, 1, 2, 3, 4]
    assert drawn.longest_context == max(step["position"] for step in steps)
    assert drawn.most_rows == 5


def test_a_report_says_whole_settings_the_day_and_how_to_make_the_zip(
    sample_traces: Path, tmp_path: Path
) -> None:
    """No setting is cut, no midnight stands for a time that was removed, no zip is spoken of as made."""
    said = report(sample_traces / "vllm-v1-server.spectrace", tmp_path / "r.md")
    assert "`async_scheduling=no`" in said
    assert "`norm_before_residual=no`" in said
    assert "| recorded | 2026-11-29 |" in said
    assert said.index("spectrace pack TRACE -o attach.zip") < said.index("spectrace diagnose attach.zip")
