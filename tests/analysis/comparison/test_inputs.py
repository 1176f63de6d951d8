"""What the drafts were run with: the cause stands before the proposals that it changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace import Trace, compare
from spectrace.analysis.comparison.difference import INPUTS
from spectrace.report.packing import pack

Traced = Callable[..., Trace]
Cut = Callable[..., list[dict[str, Any]]]
SAMPLES = Path(__file__).parents[3] / "sample_traces"


@pytest.mark.parametrize(
    ("fault", "kind", "steps", "word"),
    [
        ("draft-kv-kept", "kv_lengths", (2, 2), "KV length (draft) A 18 | B 21"),
        ("positions-shifted", "draft_positions", (1, 1), "position (token 2) A 13 | B 14"),
        ("feedback-normed", "fed_back", (1, 1), "(depth 2) A 9.725 | B 1.516"),
    ],
)
def test_a_fault_of_the_inputs_is_the_first_thing_said(
    fault: str, kind: str, steps: tuple[int, int], word: str
) -> None:
    """One kind alone differs, and the sentence points at its first step."""
    with (
        spectrace.open(SAMPLES / "eagle3.spectrace") as a,
        spectrace.open(SAMPLES / f"eagle3-{fault}.spectrace") as b,
    ):
        found = compare(a, b)
    kinds = found.first_differences.kinds
    assert [name for name in INPUTS if kinds[name].differing] == [kind]
    first = kinds[kind].first
    assert first is not None
    assert first.steps == steps
    assert f"from step {steps[0]} of A, {steps[1]} of B on" in found.next[0]
    assert word in found.next[0]
    assert found.rows.next_difference(-1) == steps[0]


def _with(steps: list[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    return [{**step, **fields} for step in steps]


def test_nothing_recorded_is_nothing_compared(traced: Traced, cut: Cut) -> None:
    """One trace with inputs and one without."""
    steps = cut(list(range(1, 20)), [2] * 9)
    found = compare(traced(steps), traced(_with(steps, draft_kv_length=3, draft_positions=[1, 2, 3])))
    kinds = found.first_differences.kinds
    assert all(kinds[name].compared == kinds[name].differing == 0 for name in INPUTS)
    assert found.is_equal


def test_rounding_of_a_state_is_no_difference(traced: Traced, cut: Cut) -> None:
    """Within the tolerance nothing is said; the first input, which is the target's, is not looked at."""
    steps = cut(list(range(1, 20)), [2] * 9)
    one = _with(steps, draft_inputs=[{"rms": 1.0}, {"rms": 10.0}, {"rms": 10.0}])
    other = _with(steps, draft_inputs=[{"rms": 9.0}, {"rms": 10.4}, {"rms": 9.6}])
    kind = compare(traced(one), traced(other)).first_differences.kinds["fed_back"]
    assert kind.compared > 0
    assert kind.differing == 0


def test_a_state_is_compared_as_far_as_it_reads_the_same_tokens(traced: Traced, cut: Cut) -> None:
    """Behind the first other draft token the states differ because the tokens do."""
    steps = cut([1, 2, 3], [1, 1, 1])
    one = _with(steps, proposal_ids=[801, 802, 803], draft_inputs=[{"rms": 1.0}, {"rms": 2.0}, {"rms": 3.0}])
    other = _with(
        steps, proposal_ids=[901, 802, 803], draft_inputs=[{"rms": 1.0}, {"rms": 2.0}, {"rms": 9.0}]
    )
    found = compare(traced(one), traced(other)).first_differences.kinds["fed_back"]
    assert (found.compared, found.differing) == (3, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"draft_positions": [5], "draft_inputs": [{"rms": 1.0}]},
        {"draft_positions": [], "draft_inputs": []},
        {"draft_positions": [2**62, -(2**62), 0], "draft_kv_length": 2**62, "target_kv_length": -1},
        {"draft_inputs": [{"rms": float("nan")}, {"rms": float("inf")}, {}]},
    ],
)
def test_inputs_of_any_size_and_length_are_survived(traced: Traced, cut: Cut, fields: dict[str, Any]) -> None:
    """Lists of the wrong length and values that are no numbers are unknown."""
    steps = cut(list(range(1, 9)), [2] * 4)
    sane = {"draft_positions": [1, 2, 3], "draft_inputs": [{"rms": 1.0}] * 3, "draft_kv_length": 3}
    for pair in ((sane, fields), (fields, sane), (fields, fields)):
        found = compare(*(traced(_with(steps, **side)) for side in pair))
        assert found.alignment.problem is None
        assert found.first_differences.kinds["fed_back"].differing == 0


@pytest.mark.parametrize("num_packed", [1, 2])
def test_of_packed_traces_no_token_is_compared(tmp_path: Path, num_packed: int) -> None:
    """The ids are gone: that is said, and what hangs on no token is compared."""
    paths = [SAMPLES / "eagle3.spectrace", SAMPLES / "eagle3-draft-kv-kept.spectrace"]
    for at in range(2 - num_packed, 2):
        out = tmp_path / f"{at}.zip"
        with spectrace.open(paths[at]) as trace:
            pack(trace, out, name=out.name)
        paths[at] = out
    with spectrace.open(paths[0]) as a, spectrace.open(paths[1]) as b:
        found = compare(a, b)
    assert found.without_ids == ("B" if num_packed == 1 else "A and B")
    kinds = found.first_differences.kinds
    assert kinds["kv_lengths"].differing
    assert all(kinds[name].compared == 0 for name in kinds if name not in ("kv_lengths", "draft_positions"))
    assert not found.taps
    assert "KV length" in found.next[0]
    assert f"No token was compared, as there are no ids in {found.without_ids}" in found.next[1]
