"""Are two drafts fed the same states?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spectrace
from spectrace import Trace, compare
from spectrace.analysis.comparison.tap_match import TapMatch

Traced = Callable[..., Trace]
Cut = Callable[..., list[dict[str, Any]]]
SAMPLES = Path(__file__).parents[3] / "sample_traces"
TEXT = list(range(1, 30))


def state(boundary: int, position: int) -> np.ndarray[Any, Any]:
    """A made-up fingerprint of a boundary at a token."""
    return np.random.default_rng([boundary, position]).standard_normal(32)


@pytest.fixture
def tapped(traced: Traced, cut: Cut) -> Callable[..., Trace]:
    """A trace whose taps are named otherwise than what they hold: name -> boundary held, and a scale."""

    def make(names: dict[int, int], scale: float = 1.0, text: list[int] = TEXT) -> Trace:
        steps = cut(text, [1, 3, 2])
        for step in steps:
            at = step["position"] - 1
            step["taps"] = [
                {
                    "boundary": name,
                    "position": at,
                    "shape": [1, 4, 64],
                    "dtype": "float32",
                    "rms": scale * held,
                    "projections": (scale * state(held, at)).tolist(),
                }
                for name, held in names.items()
            ]
        return traced(steps)

    return make


def of(taps: list[TapMatch], side: str) -> dict[int, TapMatch]:
    """Matches of one trace by the name of the tap."""
    return {match.tap: match for match in taps if match.side == side}


def test_equal_taps_are_the_same(tapped: Callable[..., Trace]) -> None:
    """Cosine 1 at the same name, both ways."""
    found = compare(tapped({2: 2, 4: 4}), tapped({2: 2, 4: 4})).taps
    assert len(found) == 4
    assert all(match.is_same and match.cosine == pytest.approx(1) for match in found)


def test_a_shift_is_found_without_any_reference(tapped: Callable[..., Trace]) -> None:
    """A's B(3) is what B calls B(2): one layer earlier, in B's words."""
    found = of(list(compare(tapped({2: 2, 3: 3}), tapped({2: 3, 3: 4})).taps), "A")
    assert (found[3].best, found[3].shift, found[3].best_in) == (2, -1, "tap")
    assert (found[2].is_match, found[2].shift) == (False, None)


def test_a_scale_is_told_from_another_state(tapped: Callable[..., Trace]) -> None:
    """The same direction at a tenth of the size is a norm, not a layer."""
    found = of(list(compare(tapped({2: 2}), tapped({2: 2}, scale=0.1)).taps), "B")[2]
    assert (found.is_same, found.is_scaled, found.shift) == (False, True, None)
    assert found.rms_ratio == pytest.approx(0.1)


def test_states_behind_a_fork_are_not_compared(tapped: Callable[..., Trace]) -> None:
    """Other texts have other states: only tokens before the fork count."""
    a, b = tapped({2: 2}), tapped({2: 2}, text=[*TEXT[:4], 99, *TEXT[5:]])
    n = compare(a, b).taps[0].n
    assert 0 < n < compare(a, tapped({2: 2})).taps[0].n


def test_the_shifted_sample_is_named_from_either_side() -> None:
    """The healthy run beside the one that is fed from one layer further up."""
    with (
        spectrace.open(SAMPLES / "eagle3.spectrace") as healthy,
        spectrace.open(SAMPLES / "eagle3-taps-shifted.spectrace") as shifted,
    ):
        later = of(list(compare(healthy, shifted).taps), "B")
        again = of(list(compare(shifted, healthy).taps), "A")
    assert {tap: match.shift for tap, match in later.items()} == {2: 1, 4: 1, 5: 1}
    assert {tap: match.shift for tap, match in again.items()} == {2: 1, 4: 1, 5: 1}


def test_the_normed_sample_is_scaled() -> None:
    """The final norm leaves the direction and takes the size."""
    with (
        spectrace.open(SAMPLES / "eagle3.spectrace") as healthy,
        spectrace.open(SAMPLES / "eagle3-taps-normed.spectrace") as normed,
    ):
        found = compare(healthy, normed)
    assert all(match.is_scaled for match in of(list(found.taps), "B").values())
    assert "look for a norm" in found.next[0]


@pytest.mark.parametrize("size", [1e300, 1e-300, 0.0])
def test_fingerprints_of_any_size_are_compared(tapped: Callable[..., Trace], size: float) -> None:
    """Numbers whose squares overflow or vanish end in no warning and in no false match."""
    found = compare(tapped({2: 2}), tapped({2: 2}, scale=size)).taps
    assert not any(match.is_same for match in found)
