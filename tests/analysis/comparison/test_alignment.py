"""Which request is compared with which, and on whose word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from spectrace import Trace, compare
from spectrace.analysis.comparison.alignment import Pairing, Prompt, align

Traced = Callable[..., Trace]
Cut = Callable[..., list[dict[str, Any]]]
IDS_1_2_3_4 = "sha256:cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72"
"""SHA-256 of 1, 2, 3, 4 as little-endian int32."""


def pairs(a: Trace, b: Trace) -> list[tuple[str, str, str]]:
    """Names and way of each pair."""
    return [(*pair.names, pair.way) for pair in align(a, b)[0].pairs]


def test_a_prompt_digest_pairs_whatever_the_names(traced: Traced) -> None:
    """Two engines name their requests differently and finish them in another order."""
    a = traced([], requests=[{"request": n, "prompt_digest": f"sha256:{n}"} for n in "xy"])
    b = traced([], requests=[{"request": f"b{n}", "prompt_digest": f"sha256:{n}"} for n in "yx"])
    assert sorted(pairs(a, b)) == [("x", "bx", "prompt_digest"), ("y", "by", "prompt_digest")]


def test_the_same_prompt_twice_is_paired_once_each(traced: Traced) -> None:
    """A repeated prompt keeps its name where it can; the others pair in their order."""
    a = traced([], requests=[{"request": n, "prompt_digest": "sha256:s"} for n in ("r0", "r1", "r2")])
    b = traced([], requests=[{"request": n, "prompt_digest": "sha256:s"} for n in ("q", "r1")])
    assert sorted(pairs(a, b)) == [("r0", "q", "prompt_digest"), ("r1", "r1", "prompt_digest")]
    assert align(a, b)[0].left_over == (["r2"], [])


def test_prompt_ids_pair_with_a_digest_of_the_same_ids(traced: Traced) -> None:
    """One recorder keeps the ids, the other only their digest."""
    a = traced([], requests=[{"request": "a", "prompt_ids": [1, 2, 3, 4]}])
    b = traced([], requests=[{"request": "b", "prompt_digest": IDS_1_2_3_4}])
    assert pairs(a, b) == [("a", "b", "prompt_ids")]


def test_a_name_pairs_where_nothing_is_known_of_the_prompts(traced: Traced) -> None:
    """It is said that nobody checked."""
    a = traced([], requests=[{"request": "b"}, {"request": "a"}])
    b = traced([], requests=[{"request": "a"}, {"request": "b"}])
    alignment, _ = align(a, b)
    assert {(p.names, p.way) for p in alignment.pairs} == {(("a", "a"), "request"), (("b", "b"), "request")}
    assert alignment.num_unchecked == 2


def test_an_external_id_pairs_with_the_name_that_an_import_gave(traced: Traced) -> None:
    """A response has its client's name for it; a server's trace has that as external_id, numbered by vLLM."""
    told = traced([], requests=[{"request": "cmpl-b"}, {"request": "cmpl-a"}])
    served = [{"request": "0", "external_id": "cmpl-a-0"}, {"request": "1", "external_id": "cmpl-b-0"}]
    found = pairs(told, traced([], requests=served))
    assert sorted(found) == [("cmpl-a", "0", "external_id"), ("cmpl-b", "1", "external_id")]


def test_order_is_the_last_resort(traced: Traced) -> None:
    """Names of servers are random."""
    a = traced([], requests=[{"request": "cmpl-1"}, {"request": "cmpl-2"}])
    b = traced([], requests=[{"request": "chat-7"}, {"request": "chat-8"}, {"request": "chat-9"}])
    assert pairs(a, b) == [("cmpl-1", "chat-7", "order"), ("cmpl-2", "chat-8", "order")]


@pytest.mark.parametrize("key", ["prompt_digest", "prompt_ids"])
def test_a_name_does_not_join_prompts_that_differ(traced: Traced, key: str) -> None:
    """Every benchmark calls its first request r0."""
    values: Any = ("sha256:aa", "sha256:bb") if key == "prompt_digest" else ([1, 2, 3], [7, 8, 9])
    a, b = (traced([], requests=[{"request": "r0", key: value}]) for value in values)
    found = compare(a, b)
    assert not found.alignment.pairs
    assert found.alignment.problem == "the two traces have no prompt in common"
    assert found.next == [
        "Record both runs with the same prompts: acceptance on different ones tells nothing."
    ]


def test_one_text_in_two_tokenizations_is_a_prompt_that_differs(traced: Traced, cut: Cut) -> None:
    """A begin-of-text token too many is found, and nothing behind the prompt is compared."""
    a = traced(cut([1, 2, 3], [1]), requests=[{"request": "r0", "prompt_ids": [5, 6, 7, 8]}])
    b = traced(cut([9, 8, 7], [1]), requests=[{"request": "r0", "prompt_ids": [0, 5, 6, 7, 8]}])
    found = compare(a, b)
    kinds = found.first_differences.kinds
    first = kinds["prompt"].first
    assert first is not None
    assert (first.index, first.values) == (0, (5, 0))
    assert kinds["prompt"].differing == 1
    assert kinds["emitted"].compared == kinds["proposal"].compared == 0
    assert found.fork is None
    assert "begin-of-text" in found.next[0]


def test_an_empty_trace_is_told_apart(traced: Traced, cut: Cut) -> None:
    """No request and no step are two sentences."""
    whole = traced(cut([1, 2], [1]))
    assert compare(whole, traced([], requests=[])).alignment.problem == "B holds no request"
    assert compare(traced([]), whole).alignment.problem == "A holds no step of a common prompt"


def test_many_equal_prompts_are_paired_first_with_first() -> None:
    """A load test sends one prompt 200,000 times: each request is looked at once, whoever waits for it."""
    many = 200_000
    sides = [[Prompt(f"{side}{n}", [n], "sha256:same", None) for n in range(many)] for side in "ab"]
    asked: Counter[str] = Counter()

    def key(prompt: Prompt) -> str | None:
        asked[prompt.name[0]] += 1
        return prompt.digest

    pairing = Pairing((sides[0], sides[1][:-1]))
    pairing.by("prompt_digest", key)
    assert all(one.numbers == other.numbers for _, one, other in pairing.pairs)
    assert len(pairing.pairs) == many - 1
    assert [[prompt.name for prompt in left] for left in pairing.left] == [[f"a{many - 1}"], []]
    assert max(asked.values()) <= many
