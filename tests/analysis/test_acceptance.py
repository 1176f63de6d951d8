"""Acceptance metrics: laws that hold for any steps, and values counted out by hand."""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrace.analysis.acceptance import (
    METRICS,
    Metric,
    accept_length,
    accept_length_without_bonus,
    acceptance_rate,
    alpha1,
    emitted_per_proposal,
    per_position,
)
from spectrace.format.counts import Counts, count_steps
from spectrace.format.shredding import shred
from spectrace.testing import step_fields

Shape = tuple[int, int]
"""Draft tokens proposed, of these accepted."""

SHAPES = st.lists(st.integers(0, 6).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k))), max_size=30)


def count(shapes: list[Shape]) -> Counts:
    """Counts of chain steps of these shapes, made as the writer makes them."""
    rows: list[dict[str, Any]] = [
        {**step_fields(proposal_ids=list(range(k)), num_accepted=a), "request": 0} for k, a in shapes
    ]
    return count_steps(shred(rows), len(rows)) if rows else Counts()


def share(part: int, whole: int) -> float | None:
    """The ratio as analysis gives it."""
    return float(Fraction(part, whole)) if whole else None


@given(SHAPES)
def test_metrics_are_what_their_formulas_say(shapes: list[Shape]) -> None:
    """Each metric equals its formula, counted step by step."""
    proposals = [(k, a) for k, a in shapes if k]
    accepted = sum(a for _, a in proposals)
    counts = count(shapes)
    assert accept_length_without_bonus(counts) == share(accepted, len(proposals))
    assert acceptance_rate(counts) == share(accepted, sum(k for k, _ in proposals))
    assert alpha1(counts) == share(sum(a > 0 for _, a in proposals), len(proposals))
    assert emitted_per_proposal(counts) == share(accepted + len(proposals), len(proposals))


@given(SHAPES)
def test_accept_length_is_the_formula_of_vllm(shapes: list[Shape]) -> None:
    """Accept length is 1 + num_accepted_tokens / num_drafts."""
    num_drafts = sum(k > 0 for k, _ in shapes)
    num_accepted_tokens = sum(a for _, a in shapes)
    found = accept_length(count(shapes))
    assert found == (1 + num_accepted_tokens / num_drafts if num_drafts else None)


@given(SHAPES)
def test_positions_are_counted_by_their_definitions(shapes: list[Shape]) -> None:
    """Proposals of different length: c_j asks only those that proposed j and accepted all before."""
    proposals = [(k, a) for k, a in shapes if k]
    found = per_position(count(shapes))
    assert len(found) == max((k for k, _ in proposals), default=0)
    for j, entry in enumerate(found):
        accepted = sum(a > j for _, a in proposals)
        assert entry.position == j
        assert entry.unconditional == share(accepted, len(proposals))
        assert entry.given_proposed == share(accepted, sum(k > j for k, _ in proposals))
        assert entry.conditional == share(accepted, sum(k > j and a >= j for k, a in proposals))


@given(SHAPES)
def test_the_conditional_rates_multiply_to_the_share_accepted_when_all_are_as_long(
    shapes: list[Shape],
) -> None:
    """With one proposal length, c_0 * .. * c_j is the unconditional rate at j."""
    found = per_position(count([(6, a) for _, a in shapes]))
    product = 1.0
    for entry in found:
        product *= entry.conditional or 0.0
        assert product == pytest.approx(entry.unconditional)


@given(SHAPES, SHAPES)
def test_counts_add_up_before_any_ratio_is_made(first: list[Shape], second: list[Shape]) -> None:
    """Metrics of two parts added are the metrics of the whole."""
    both = deepcopy(count(first))
    both.add(count(second))
    whole = count(first + second)
    for metric in METRICS:
        assert metric.value(both) == metric.value(whole)
    assert per_position(both) == per_position(whole)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_no_proposal_means_no_number(metric: Metric) -> None:
    """Without a proposal a metric is missing, never zero and never an exception."""
    assert metric.value(Counts(steps=3, emitted=3)) is None


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_named_after_its_function(metric: Metric) -> None:
    """The name a person reads is the function a program calls, and both say how it is made."""
    assert getattr(metric.value, "__name__", None) == metric.name
    assert metric.value.__doc__
    assert metric.formula


def test_a_step_cut_by_eos_lowers_only_what_was_emitted() -> None:
    """Accept length grants the target's token to a step that EOS cut; emitted_per_proposal does not."""
    row = {**step_fields(proposal_ids=[5, 6], num_accepted=2, emitted_ids=[5, 6]), "request": 0}
    counts = count_steps(shred([row]), 1)
    assert accept_length(counts) == 3
    assert emitted_per_proposal(counts) == 2
