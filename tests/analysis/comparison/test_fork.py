"""Is a text that parts a fault? By the rule of the diagnosis, and with what else is known of the place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spectrace import Trace, compare
from spectrace.analysis.comparison.fork import Fork
from tests.analysis.comparison.cutting import GREEDY

Traced = Callable[..., Trace]
Cut = Callable[..., list[dict[str, Any]]]
SAMPLED = {"verification": {"rule": "rejection_sampling"}, "sampling": {"temperature": 0.8}}
FLOAT32 = {**GREEDY, "target": {"dtype": "float32"}}


@pytest.fixture
def fork(traced: Traced, cut: Cut) -> Callable[..., Fork]:
    """Part two texts at their third token, in the middle of a step of A, with what A's target saw there."""

    def make(
        run: Any = None, other_run: Any = None, *, picks: tuple[int, int] = (3, 33), **seen: Any
    ) -> Fork:
        a, b = cut([1, 2, 3, 4], [1, 3]), cut([1, 2, 33, 44], [1, 3])
        a[1] |= seen
        a[1]["target_ids"] = [2, picks[0], 4, 700]
        b[1]["target_ids"] = [2, picks[1], 44, 700]
        found = compare(traced(a, run), traced(b, other_run or run)).fork
        assert found is not None
        return found

    return make


def top(first: int, second: int, gap: float) -> list[list[list[float]]]:
    """Two best choices at each of four places."""
    return [[[first, -0.5], [second, -0.5 - gap]] for _ in range(4)]


def test_a_gap_within_rounding_is_a_tie(fork: Callable[..., Fork]) -> None:
    """Gap of one unit in the last place of bfloat16, and the other token is the second choice (case H9)."""
    found = fork(target_gaps=[9, 0.125, 9, 9], target_top=top(3, 33, 0.125))
    assert (found.verdict, found.gap, found.rank_of_other) == ("tie", 0.125, 2)
    assert (found.picks, found.was_draft) == ((3, 33), (True, True))
    assert found.difference.token == 2


@pytest.mark.parametrize(
    ("gaps", "alternatives"),
    [([9, 2.0, 9, 9], top(3, 33, 2.0)), ([9, 0.1, 9, 9], [[[3, -1], [5, -1.1], [33, -1.2]]] * 4)],
    ids=["wide gap", "third choice"],
)
def test_a_wide_gap_or_a_third_choice_is_no_tie(
    fork: Callable[..., Fork], gaps: Any, alternatives: Any
) -> None:
    """Rounding swaps neighbours only."""
    assert fork(target_gaps=gaps, target_top=alternatives).verdict == "no_tie"


def test_the_coarser_type_sets_the_limit(fork: Callable[..., Fork]) -> None:
    """A float32 run beside a bfloat16 run parts by what bfloat16 cannot hold, whichever saw the gap."""
    seen = {"target_gaps": [9, 0.1, 9, 9]}
    assert fork(FLOAT32, FLOAT32, **seen).verdict == "no_tie"
    assert fork(FLOAT32, GREEDY, **seen).verdict == "tie"


def test_a_run_that_samples_may_part(fork: Callable[..., Fork]) -> None:
    """No gap makes a fault of it."""
    assert fork(GREEDY, SAMPLED, target_gaps=[9, 5.0, 9, 9]).verdict == "sampled"


def test_what_was_not_recorded_is_not_judged(fork: Callable[..., Fork]) -> None:
    """Neither gap nor alternatives, or nothing known of the sampling."""
    assert fork().verdict == "unknown"
    assert fork({"method": "eagle3"}, target_gaps=[9, 0.1, 9, 9]).verdict == "unknown"


def test_a_token_that_the_target_did_not_pick_is_no_rounding(fork: Callable[..., Fork]) -> None:
    """Both targets picked 3; B committed 33 all the same."""
    assert fork(picks=(3, 3), target_gaps=[9, 4.0, 9, 9]).verdict == "off_pick"
    assert fork(picks=(3, 3), target_gaps=[9, 0.01, 9, 9]).verdict == "tie"


def test_of_several_forks_the_worst_is_shown(traced: Traced, cut: Cut) -> None:
    """One text parts by rounding, another does not: the second is what to look at."""
    names = ("r0", "r1", "r2")
    requests = [{"request": name, "prompt_digest": f"sha256:{name}"} for name in names]
    a, b = [], []
    for name, gap in zip(names, (0.1, 3.0, 0.1)):
        a += [{**step, "target_gaps": [gap] * 4} for step in cut([1, 2], [1], request=name)]
        b += cut([1, 5], [1], request=name)
    found = compare(traced(a, None, requests), traced(b, None, requests)).fork
    assert found is not None
    assert (found.verdict, found.difference.request) == ("no_tie", ("r1", "r1"))
    assert (found.num_forks, found.judged) == (3, {"no_tie": 1, "tie": 2})
