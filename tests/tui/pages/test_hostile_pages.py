"""Pages of traces that are empty, damaged or made to harm: shown as what they are, at any width."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spectrace
from spectrace import TraceWriter
from spectrace.tui.loader import Loader
from spectrace.tui.pages import PAGES, Page
from tests import strategies
from tests.tui.pages.showing import check_lines, facts_of, lines_of
from tests.tui.traces import made_step, make_trace

HOSTILE = "\x1b]0;owned\x07\x1b[2J[bold red]\n\r\t\u202e\u200b\x9b31m[/] $(id) 世界" * 3
WIDTHS = (20, 21, 39, 40, 79, 80, 120, 200)
SAMPLES = (
    "eagle3",
    "eagle3-tree",
    "eagle3-map-as-direct",
    "eagle3-taps-shifted",
    "draft-sampled",
    "prompt-lookup",
    "killed",
    "full-v1",
    "minimal-v1",
)
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)


@every_page
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_fit_every_width(page: Page, name: str, sample_traces: Path) -> None:
    """No line of a page is wider than asked for, and none leads to a step that is not there."""
    path = sample_traces / f"{name}.spectrace"
    with spectrace.open(path) as trace:
        total = len(trace)
    facts = facts_of(page, path, total // 2)
    for width in WIDTHS:
        lines = page.lines(facts, width)
        check_lines(lines, width, total)
        assert any(line.spans for line in lines)


@every_page
def test_hostile_texts_are_shown_as_escapes(page: Page, tmp_path: Path) -> None:
    """Whatever text a trace holds, no control character and no markup of it reaches the screen."""
    run = {
        "created": HOSTILE,
        "method": HOSTILE,
        "engine": {"name": HOSTILE, "version": HOSTILE, "flags": {HOSTILE: HOSTILE}},
        "recorder": {"name": HOSTILE, "version": HOSTILE},
        "target": {"id": HOSTILE, "dtype": HOSTILE, "vocab_size": 500},
        "draft": {"id": HOSTILE, "quantization": HOSTILE, "parameters": {"missing": [HOSTILE]}},
        "vocab_map": {"d2t": [0, 1], "source": HOSTILE, "applied": HOSTILE, "digest": HOSTILE},
        "taps": {"origin": HOSTILE, "numbering": HOSTILE, "boundaries": [3]},
        "verification": {"rule": HOSTILE},
        "sampling": {"processors": [HOSTILE]},
        "training": {HOSTILE: [HOSTILE]},
        "reported": {HOSTILE: HOSTILE},
        "capture": {"mode": HOSTILE, "unavailable": {HOSTILE: HOSTILE, "draft_top": HOSTILE}},
    }
    path = tmp_path / "bad\x1b[31m.spectrace"
    with TraceWriter(path, run, strict=True) as writer:
        writer.tokens(target=dict.fromkeys(range(90, 120), HOSTILE), draft=dict.fromkeys(range(20), HOSTILE))
        for row in range(6):
            step = {**made_step(row), "request": HOSTILE, "final_kind": HOSTILE, "stop": HOSTILE}
            step |= {"flags": [HOSTILE], "segment": HOSTILE, "mask": [HOSTILE], "logits_kind": HOSTILE}
            step |= {"taps": [{"boundary": 3, "shape": [1], "dtype": HOSTILE, "rms": 1.0}], HOSTILE: HOSTILE}
            writer.step(step)
    for width in (20, 80, 200):
        check_lines(lines_of(page.id, path, 2, width), width, 6)


HARM: dict[str, dict[str, Any]] = {
    "short arrays": {"draft_ids": [2**40], "target_ids": [], "target_ranks": [1], "draft_top": [[]]},
    "ids out of range": {"emitted_ids": [-5, 2**50], "proposal_ids": [-1, 2**62, 0], "num_accepted": 9},
    "no numbers": {
        "draft_logprobs": [float("nan"), float("inf"), float("-inf")],
        "taps": [{"boundary": 3, "shape": [1], "dtype": "f", "rms": float("nan"), "nonfinite": 3}],
        "draft_inputs": [{"rms": float("inf")}],
    },
    "holes": {
        "flags": [None],
        "mask": [None],
        "parents": [None, 0, 0],
        "accepted_nodes": [None],
        "draft_positions": [None] * 3,
        "target_ids": [None] * 4,
        "draft_ids": [None] * 3,
        "target_ranks": [None] * 3,
    },
    "loops in a tree": {"parents": [2, 0, 1], "accepted_nodes": [9, -4]},
    "impossible times": {"step_ns": 2**62, "draft_ns": -5, "started_ns": -(2**62)},
    "negative lengths": {"position": -9, "draft_kv_length": -(2**40), "num_accepted_reported": -1},
    "odd taps": {
        "taps": [
            {"boundary": 2**40, "index": 2**40, "position": -1, "shape": [0] * 50, "dtype": "x", "rms": 1e308}
        ]
        * 3
    },
}


@every_page
@pytest.mark.parametrize("harm", HARM)
def test_malformed_steps_are_shown_as_far_as_they_go(page: Page, harm: str, tmp_path: Path) -> None:
    """Arrays of the wrong length, impossible numbers and trees raise nothing."""
    path = make_trace(tmp_path / "bad.spectrace", 6, **HARM[harm])
    for row in (0, 3):
        facts = facts_of(page, path, row)
        for width in (20, 80, 200):
            check_lines(page.lines(facts, width), width, 6)


BIG = 2**64 - 1
HEADERS: dict[str, dict[str, Any]] = {
    "entries beyond 64 bits": {"vocab_map": {"d2t": [BIG, -(2**63), 3]}},
    "kept ids beyond 64 bits": {"vocab_map": {"d2t": [0, 1], "t2d": [BIG]}},
    "empty tables": {"vocab_map": {"d2t": [], "t2d": []}, "target": {"vocab_size": 10}},
    "negative sizes": {"target": {"vocab_size": -5, "num_layers": -1}, "draft": {"head_rows": BIG}},
    "boundaries beyond 64 bits": {"taps": {"declared": [BIG, -3], "boundaries": [BIG, -1], "order": [BIG]}},
    "no numbers": {"sampling": {"temperature": float("nan")}, "baseline": {"token_ns": -1}},
    "odd trees": {"speculation": {"num_draft_tokens": -1, "tree": {"topk": BIG}}},
}


@every_page
@pytest.mark.parametrize("header", HEADERS)
def test_impossible_headers_are_shown(page: Page, header: str, tmp_path: Path) -> None:
    """Numbers that no run can have, in header and fingerprints, raise nothing and warn of nothing."""
    path = tmp_path / "t.spectrace"
    tap = {
        "boundary": 3,
        "position": 0,
        "shape": [16],
        "dtype": "f",
        "rms": 1e308,
        "projections": [1e308] * 32,
    }
    flat = {**tap, "position": 1, "shape": [], "rms": 0.0, "projections": [0.0] * 32}
    with TraceWriter(path, HEADERS[header], strict=True) as writer:
        for position, value in ((0, 1e308), (1, float("nan")), (BIG, 0.0)):
            row = {"position": position, "rms": value, "projections": [value] * 32}
            writer.reference(boundary=3, rows=[row])
        for row_number in range(6):
            writer.step({**made_step(row_number), "taps": [tap, flat]})
    with spectrace.open(path) as trace:
        loader = Loader(trace, against=[path])
        for width in (20, 80, 200):
            check_lines(page.lines(page.gather(loader, 2), width), width, 6)


@every_page
def test_an_empty_trace_has_pages(page: Page, tmp_path: Path) -> None:
    """A trace without a step says so on every page."""
    lines = lines_of(page.id, make_trace(tmp_path / "empty.spectrace", 0))
    check_lines(lines, 80, 0)
    assert any(line.spans for line in lines)


@every_page
def test_a_deep_tree_is_drawn_in_bounds(page: Page, tmp_path: Path) -> None:
    """A made-up tree of thousands of nodes, each below the last, is drawn in a bounded page."""
    size = 3000
    path = make_trace(
        tmp_path / "deep.spectrace",
        2,
        proposal_ids=[101] * size,
        parents=list(range(-1, size - 1)),
        target_ids=[101] * (size + 1),
        num_accepted=1,
        emitted_ids=[101, 102],
    )
    lines = lines_of(page.id, path, 1)
    check_lines(lines, 80, 2)
    assert len(lines) < 2500


@every_page
def test_damaged_steps_leave_the_page_standing(page: Page, tmp_path: Path) -> None:
    """A page of a trace with a damaged frame shows the rest."""
    path = tmp_path / "damaged.spectrace"
    ends = []
    with TraceWriter(path, {}, strict=True) as writer:
        for row in range(30):
            writer.step(made_step(row))
            if row % 10 == 9:
                writer.flush()
                ends.append(path.stat().st_size)
    data = bytearray(path.read_bytes())
    data[(ends[0] + ends[1]) // 2] ^= 0xFF
    path.write_bytes(data)
    with spectrace.open(path) as trace:
        hole = next(row for row in range(30) if trace.steps.get(row) is None)
    check_lines(lines_of(page.id, path, hole), 80, 30)


@given(
    run=strategies.runs,
    steps=st.lists(strategies.steps(), max_size=5),
    requests=st.lists(strategies.requests, max_size=2, unique_by=lambda one: one["request"]),
    tokens=strategies.token_tables,
    references=st.lists(strategies.references, max_size=2),
    width=st.integers(20, 200),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_any_trace_has_pages(
    run: dict[str, Any],
    steps: list[dict[str, Any]],
    requests: list[dict[str, Any]],
    tokens: dict[str, Any],
    references: list[dict[str, Any]],
    width: int,
) -> None:
    """Whatever a trace holds, every page of every step has lines that fit and that a terminal can take."""
    with TemporaryDirectory() as folder:
        _check_any(Path(folder) / "any.spectrace", run, steps, requests, tokens, references, width)


def _check_any(
    path: Path,
    run: dict[str, Any],
    steps: list[dict[str, Any]],
    requests: list[dict[str, Any]],
    tokens: dict[str, Any],
    references: list[dict[str, Any]],
    width: int,
) -> None:
    with TraceWriter(path, run) as writer:
        for request in requests:
            fields = dict(request)
            writer.request(fields.pop("request"), **fields)
        writer.tokens(**tokens)
        for reference in references:
            writer.reference(**reference)
        for step in steps:
            writer.step(step)
    with spectrace.open(path) as trace:
        loader = Loader(trace)
        for page in PAGES:
            for row in range(loader.total if page.follows_cursor else 1):
                check_lines(page.lines(page.gather(loader, row), width), width, loader.total)
