"""The list of formulas: each is named and sourced, and a number is matched to the one that gives it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrace.analysis.formulas import (
    FORMULAS,
    Formula,
    Given,
    RequestSums,
    Sums,
    explain,
    position_formulas,
    read_number,
)
from spectrace.format.counts import Counts

COUNTS = Counts(
    steps=110,
    proposals=100,
    drafted=400,
    accepted=131,
    emitted=240,
    emitted_by_proposals=229,
    proposed_at=[100, 100, 100, 100],
    reached_at=[100, 60, 40, 20],
    accepted_at=[60, 40, 20, 11],
)
REQUESTS = RequestSums(*(np.array(pair) for pair in ([10, 90], [40, 360], [30, 101], [40, 189])))
SUMS = Sums(counts=COUNTS, nominal=5, counted=241, requests=REQUESTS)
EXPECTED = {
    "accept_length": 2.31,
    "accept_length_without_bonus": 1.31,
    "emitted_per_proposal": 2.29,
    "all_emitted_per_proposal": 2.40,
    "emitted_per_step": 240 / 110,
    "accept_length_as_counted": 2.41,
    "accept_length_mean_of_requests": 1 + (3 + 101 / 90) / 2,
    "accept_length_without_bonus_mean_of_requests": (3 + 101 / 90) / 2,
    "emitted_per_proposal_mean_of_requests": (4 + 2.1) / 2,
    "acceptance_rate": 131 / 400,
    "acceptance_rate_as_counted": 141 / 400,
    "acceptance_rate_by_depth": None,
    "acceptance_rate_of_declared": 131 / 500,
    "acceptance_rate_mean_of_requests": (30 / 40 + 101 / 360) / 2,
    "alpha1": 0.60,
}


def names(text: str, sums: Sums = SUMS) -> list[str]:
    """Formulas that give a number as it was printed."""
    number = read_number(text)
    assert number is not None
    return [match.formula.name for match in explain(number, sums).matches]


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_every_formula_has_the_value_worked_out_by_hand(formula: Formula) -> None:
    """One run, every number that anybody prints of it; each says how it is made and who uses it."""
    assert formula.value(SUMS) == pytest.approx(EXPECTED[formula.name])
    assert formula.formula
    assert formula.used_by


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_without_steps_no_formula_has_a_value(formula: Formula) -> None:
    """Nothing is divided by zero, and missing sums are no zeros."""
    nobody = RequestSums(*(np.zeros(2, np.int64) for _ in range(4)))
    assert formula.value(Sums(counts=Counts())) is None
    assert formula.value(Sums(counts=Counts(), nominal=0, counted=0, requests=nobody)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.31", ["accept_length"]),
        ("1.31", ["accept_length_without_bonus"]),
        ("2.2900", ["emitted_per_proposal"]),
        ("2.4", ["all_emitted_per_proposal", "accept_length_as_counted"]),
        ("32.75%", ["acceptance_rate"]),
        ("32.8", ["acceptance_rate"]),
        ("0.26", ["acceptance_rate_of_declared"]),
        ("60 %", ["alpha1"]),
        ("0.40", ["position_1_unconditional", "position_1_given_proposed"]),
        ("0.55", ["position_3_conditional"]),
        ("7.77", []),
    ],
)
def test_a_number_is_matched_to_its_printed_precision(text: str, expected: list[str]) -> None:
    """Neither a digit more nor one less than was printed; a rate also per cent; several where several fit."""
    assert names(text) == expected


def test_where_none_fits_the_nearest_are_offered() -> None:
    """The closest first, and none of them where something matches."""
    found = explain(Given(2.33, 2), SUMS)
    assert found.nearest[0].formula.name == "accept_length"
    assert len(found.nearest) == 3
    assert explain(Given(2.31, 2), SUMS).nearest == []


def test_of_a_tree_nodes_and_depths_are_told_apart() -> None:
    """12 nodes on paths of 4: accepted per node and per position differ."""
    tree = Counts(proposals=10, drafted=120, accepted=30, proposed_at=[10] * 4, accepted_at=[10, 10, 10])
    assert names("0.75", Sums(counts=tree))[0] == "acceptance_rate_by_depth"
    assert names("0.25", Sums(counts=tree))[0] == "acceptance_rate"


@pytest.mark.parametrize("text", ["", "abc", "-1", "1e3", "nan", "inf", "1.2.3", "%", "1" * 10, "\u0662.31"])
def test_what_is_no_number_is_none(text: str) -> None:
    """Signs, powers and other scripts are not what an engine prints."""
    assert read_number(text) is None


@given(st.floats(0, 1e6, allow_nan=False), st.integers(0, 6))
def test_a_printed_value_is_always_found_again(value: float, digits: int) -> None:
    """Rounding to the digits shown never loses the formula."""
    number = read_number(f"{value:.{digits}f}")
    assert number is not None
    assert number.is_(value)


def test_positions_are_offered_from_the_second_on() -> None:
    """The first is alpha1; only so many are offered that a person reads them."""
    deep = Counts(proposals=9, proposed_at=[9] * 40, reached_at=[9] * 40, accepted_at=[9] * 40)
    offered = [formula.name for formula in position_formulas(deep)]
    assert offered[0] == "position_1_unconditional"
    assert offered[-1] == "position_15_conditional"
