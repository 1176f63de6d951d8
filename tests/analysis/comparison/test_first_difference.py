"""Where two runs part: what is found, and what is rightly not called a difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spectrace
from spectrace import Comparison, Trace, compare
from spectrace.testing import write_trace
from tests.analysis.comparison.cutting import GREEDY, steps_of

Traced = Callable[..., Trace]
Cut = Callable[..., list[dict[str, Any]]]
TEXT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def differing(found: Comparison) -> dict[str, int]:
    """How many of each kind differ, those that do."""
    return {name: k.differing for name, k in found.first_differences.kinds.items() if k.differing}


def test_a_run_recorded_twice_is_equal(traced: Traced, cut: Cut) -> None:
    """Nothing differs, and it is said so."""
    steps = cut(TEXT, [1, 3, 4, 2])
    found = compare(traced(steps), traced(steps))
    assert found.is_equal
    assert found.next == ["Nothing: what the traces hold is the same."]
    assert found.first_differences.kinds["emitted"].compared == len(TEXT)


def test_another_number_of_draft_tokens_changes_lengths_only(traced: Traced, cut: Cut) -> None:
    """The texts are equal; every proposal that can be compared differs in nothing but its length."""
    a = traced(cut(TEXT, [1, 2, 3, 1], num_draft_tokens=4))
    b = traced(cut(TEXT, [1, 2, 3, 1], num_draft_tokens=3))
    found = compare(a, b)
    proposals = found.first_differences.kinds["proposal"]
    assert differing(found) == {"proposal": proposals.compared}
    assert found.first_differences.only_length == proposals.compared > 0
    assert "only the number of draft tokens differs" in found.next[0]


def test_steps_are_compared_by_committed_length(traced: Traced, cut: Cut) -> None:
    """Two engines cut one text into other steps: step 2 of A stands beside step 3 of B."""
    a, b = cut(TEXT, [1, 3, 3]), cut(TEXT, [1, 1, 2, 3])
    b[1]["proposal_ids"] = a[1]["proposal_ids"]
    b[3]["proposal_ids"] = [*b[3]["proposal_ids"][:1], 555, 901]
    b[3] |= {"num_accepted": 1, "emitted_ids": [5, 6]}
    b[4:] = cut(TEXT[6:], [4], start=16)
    found = compare(traced(a), traced(b))
    first = found.first_differences.kinds["proposal"].first
    assert first is not None
    assert (first.steps, first.position, first.index, first.token) == ((2, 3), 15, 1, 5)
    assert first.values == (6, 555)
    assert "emitted" not in differing(found)


def test_nothing_behind_a_fork_is_compared(traced: Traced, cut: Cut) -> None:
    """Texts that have parted have nothing in common but their past."""
    a = cut(TEXT, [1, 2, 2, 2])
    b = cut([1, 2, 3, 44, 55, 66, 77, 88], [1, 2, 2, 2])
    found = compare(traced(a), traced(b))
    kinds = found.first_differences.kinds
    assert (kinds["emitted"].differing, kinds["emitted"].compared) == (1, 4)
    fork = kinds["emitted"].first
    assert fork is not None
    assert (fork.token, fork.position, fork.steps, fork.values) == (3, 13, (2, 2), (4, 44))
    assert kinds["proposal"].compared == 3  # the steps at 10, 11 and 13, where the texts still agree
    assert kinds["target_pick"].differing == 1


def test_a_decision_is_compared_as_far_as_both_propose_the_same(traced: Traced, cut: Cut) -> None:
    """The same proposal and the same picks, but one accepts fewer: verification differs."""
    a, b = cut(TEXT, [1, 4, 4]), cut(TEXT, [1, 4, 4])
    b[1] |= {"num_accepted": 2, "emitted_ids": [2, 3, 4]}
    b[2:] = cut(TEXT[4:], [4], start=14)
    found = compare(traced(a), traced(b))
    first = found.first_differences.kinds["decision"].first
    assert first is not None
    assert (first.steps, first.index, first.values) == ((1, 1), 2, (3, 2))
    assert "emitted" not in differing(found)
    assert "compare the verification rules" in found.next[0]


@pytest.mark.parametrize("flags", [["truncated"], None])
def test_a_step_cut_by_the_end_decides_nothing(traced: Traced, cut: Cut, flags: list[str] | None) -> None:
    """A length limit inside the accepted tokens refuses none of them."""
    a, b = cut(TEXT[:5], [1, 4]), cut(TEXT[:5], [1, 4])
    b[1] |= {"emitted_ids": [2, 3], "num_accepted": 2, "stop": "length", "flags": flags}
    b[1] = {key: value for key, value in b[1].items() if value is not None}
    found = compare(traced(a), traced(b[:2]))
    assert differing(found) == {}
    assert found.first_differences.ends_earlier == 1


@pytest.mark.parametrize("flag", ["dummy", "replay"])
def test_steps_that_were_not_real_are_left_out(traced: Traced, cut: Cut, flag: str) -> None:
    """A dummy of warm-up or a replay is no step of the request."""
    steps = cut(TEXT, [1, 3, 4])
    fake = {**steps[1], "proposal_ids": [8, 8, 8], "emitted_ids": [8, 8, 8], "flags": [flag]}
    found = compare(traced(steps), traced([steps[0], fake, *steps[1:]]))
    assert differing(found) == {}


def test_a_prefill_is_beside_no_proposal(traced: Traced, cut: Cut) -> None:
    """One recorder writes the prefill as a step of its own, the other drafts in the same step."""
    prefill = {
        "request": "r0", "step": 0, "position": 10, "proposal_ids": [], "num_accepted": 0,
        "emitted_ids": [1], "flags": ["prefill"],
    }  # fmt: skip
    a = [prefill, *cut(TEXT[1:], [2, 3], start=11)]
    found = compare(traced(a), traced(cut(TEXT, [1, 2, 3])))
    assert differing(found) == {}


def test_another_reading_of_the_map_is_told_from_another_draft(traced: Traced, cut: Cut) -> None:
    """The same raw ids, another target id."""
    a, b = cut(TEXT, [1] * 8), cut(TEXT, [1] * 8)
    for step in a:
        step["draft_ids"] = [3, 4, 5]
    for step in b:
        step |= {"draft_ids": [3, 4, 5], "proposal_ids": [3, 4, 5]}
    found = compare(traced(a), traced(b))
    assert found.first_differences.same_raw_other_id >= 24
    assert "the vocabulary map is read in two ways" in found.next[0]


def test_a_count_beyond_the_proposal_decides_nothing(traced: Traced, cut: Cut) -> None:
    """A contradictory count is not compared, and breaks nothing."""
    a, b = cut(TEXT, [1, 3]), cut(TEXT, [1, 3])
    b[1]["num_accepted"] = 99
    assert "decision" not in differing(compare(traced(a), traced(b)))


def test_a_chain_beside_a_tree_is_not_compared_token_by_token(traced: Traced, cut: Cut) -> None:
    """Which node stands for which nobody knows; the texts and the picks along the path are compared."""
    a = cut(TEXT, [1, 3, 4])
    b = cut(TEXT, [1, 3, 4])
    b[1] |= {
        "proposal_ids": [800, 2, 3],
        "parents": [-1, -1, 1],
        "accepted_nodes": [1, 2],
        "target_ids": [2, 700, 3, 4],
    }
    found = compare(traced(a), traced(b))
    assert found.first_differences.other_shape == 1
    assert differing(found) == {}
    assert found.first_differences.kinds["target_pick"].compared == len(TEXT)


def test_trees_are_compared_node_by_node(traced: Traced, cut: Cut) -> None:
    """A node that hangs elsewhere is a difference, though the ids are the same."""
    a, b = cut(TEXT, [1, 2]), cut(TEXT, [1, 2])
    tree = {"proposal_ids": [2, 800, 3], "accepted_nodes": [0], "target_ids": [2, 3, 700, 701]}
    a[1] |= tree | {"parents": [-1, -1, 1]}
    b[1] |= tree | {"parents": [-1, -1, 0]}
    first = compare(traced(a), traced(b)).first_differences.kinds["proposal"].first
    assert first is not None
    assert (first.index, first.values) == (2, (3, 3))


def test_ids_that_are_not_known_are_neither_equal_nor_different(traced: Traced, cut: Cut) -> None:
    """Raw ids with holes are compared where both are known."""
    a, b = cut(TEXT, [1, 3]), cut(TEXT, [1, 3])
    for step in (*a, *b):
        step["draft_ids"] = [None, None, None]
    assert differing(compare(traced(a), traced(b))) == {}


def test_tokens_that_one_trace_lost_are_counted(traced: Traced, cut: Cut) -> None:
    """A gap in the middle of a text hides whatever happened there, and it is said how much."""
    a = cut(TEXT, [1, 2, 2, 2])
    found = compare(traced(a), traced([a[0], *a[2:]]))
    assert differing(found) == {}
    assert found.first_differences.unseen == 2


cuts = st.lists(st.integers(1, 5), max_size=30)
texts = st.lists(st.integers(1, 600), min_size=1, max_size=40)


def compared(*pairs: tuple[list[int], list[int]]) -> Comparison:
    """Compare two runs, each given as its text and its cuts."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{at}.spectrace" for at in range(2)]
        for path, (text, own_cuts) in zip(paths, pairs):
            write_trace(path, steps_of(text, own_cuts, num_draft_tokens=4))
        with spectrace.open(paths[0]) as a, spectrace.open(paths[1]) as b:
            return compare(a, b)


@settings(max_examples=40, deadline=None)
@given(texts, cuts, cuts)
def test_law_however_a_text_is_cut_it_is_the_same_text(
    text: list[int], one: list[int], other: list[int]
) -> None:
    """Two cuts of one text: no pick, no decision and no token differs."""
    found = compared((text, one), (text, other))
    assert not {"target_pick", "emitted"} & set(differing(found))
    assert found.fork is None


@settings(max_examples=40, deadline=None)
@given(texts, cuts, cuts, st.data())
def test_law_a_changed_token_is_found_at_its_place(
    text: list[int], one: list[int], other: list[int], data: st.DataObject
) -> None:
    """However the two are cut, the fork is the token that was changed, and it is the same both ways."""
    at = data.draw(st.integers(0, len(text) - 1))
    changed = [*text[:at], text[at] + 1, *data.draw(texts)]
    for sides in (((text, one), (changed, other)), ((changed, other), (text, one))):
        found = compared(*sides)
        assert found.fork is not None
        assert found.fork.difference.token == at
        assert found.first_differences.kinds["emitted"].compared == at + 1


def test_another_precision_explains_a_few_other_proposals(traced: Traced, cut: Cut) -> None:
    """Weights in another type have other digests; nobody is sent to look for missing ones."""
    a, b = cut(TEXT, [1, 3, 4]), cut(TEXT, [1, 3, 4])
    b[2]["proposal_ids"] = [5, 6, 555]
    b[2] |= {"num_accepted": 2, "emitted_ids": [5, 6, 7]}
    runs = [
        {**GREEDY, "draft": {"dtype": dtype, "fingerprints": {"w": {"digest": dtype}}}}
        for dtype in ("float32", "bfloat16")
    ]
    found = compare(traced(a, runs[0]), traced(b, runs[1]))
    assert found.next == ["The runs compute in other types: some other proposals are to be expected."]


def advice_for(traced: Traced, cut: Cut, one: dict[str, Any], other: dict[str, Any]) -> str:
    """What to look at when one proposal differs and the headers are these."""
    a, b = cut(TEXT, [1, 2, 4]), cut(TEXT, [1, 2, 4])
    b[1]["proposal_ids"] = [2, 555, 556]
    return compare(traced(a, {**GREEDY, **one}), traced(b, {**GREEDY, **other})).next[0]


def test_the_advice_follows_what_the_headers_say_of_the_drafts(traced: Traced, cut: Cut) -> None:
    """Another name for the same weights is the same draft; other layers are a cause of their own."""
    weights = {"fingerprints": {"w": {"digest": "x"}}}
    named = [{"draft": {"id": name, **weights}} for name in ("eagle3", "org/eagle3")]
    assert "change back one by one" in advice_for(traced, cut, named[0], named[1])
    unknown = [{"draft": {"id": name}} for name in ("eagle3", "org/other")]
    assert "go by other names" in advice_for(traced, cut, unknown[0], unknown[1])
    other = {"draft": {"id": "eagle3", "fingerprints": {"w": {"digest": "y"}}}}
    assert "hold other weights" in advice_for(traced, cut, named[0], other)
    methods = [{"method": method} for method in ("eagle3", "ngram")]
    assert "These are different drafts" in advice_for(traced, cut, methods[0], methods[1])
    layers = [{"draft": weights, "taps": {"boundaries": ids}} for ids in ([2, 4, 5], [5, 4, 2])]
    assert "compare the layers declared, their order" in advice_for(traced, cut, layers[0], layers[1])
    assert "look there at positions" in advice_for(traced, cut, named[0], named[0])


def test_a_run_without_drafting_is_a_control_of_the_text(traced: Traced, cut: Cut) -> None:
    """One token a step and no proposal: the texts are compared, and nobody is told to compare drafts."""
    plain = cut(TEXT, [1] * len(TEXT), num_draft_tokens=0)
    found = compare(traced(cut(TEXT, [1, 3, 4])), traced(plain))
    assert found.first_differences.kinds["emitted"].compared == len(TEXT)
    assert found.next == ["B drafts nothing, and as far as both go the text is the same without drafting."]
    parted = compare(traced(cut([*TEXT[:5], 99], [1, 3, 4])), traced(plain))
    assert parted.fork is not None
    assert parted.fork.difference.token == 5
