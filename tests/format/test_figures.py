"""Numbers as they are written, and sizes as they are typed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrace.format.figures import count_of, number, size_of


@given(st.one_of(st.integers(), st.floats()), st.integers(0, 6))
def test_any_number_is_one_short_word(value: float, digits: int) -> None:
    """NaN, infinity and what a hostile trace makes up are written without a space and never long."""
    text = number(value, digits)
    assert text
    assert " " not in text
    assert isinstance(value, int) or len(text) < 32


def test_numbers_that_are_none_are_said_to_be() -> None:
    """NaN is no dash: it was recorded."""
    assert (number(None), number(math.nan), number(-math.inf)) == ("-", "nan", "-inf")


def test_a_count_takes_its_noun_along() -> None:
    """One of a thing is singular; a noun may have a plural of its own."""
    assert count_of(1, "entry", "entries") == "1 entry"
    assert count_of(0, "entry", "entries") == "0 entries"


@given(st.integers(0, 10**15), st.sampled_from([("", 1), ("kB", 10**3), ("MiB", 1 << 20), ("G", 1 << 30)]))
def test_a_size_is_its_number_of_units(whole: int, unit: tuple[str, int]) -> None:
    """Bytes in thousands, in 1024s, or plain, to the last byte."""
    word, size = unit
    assert size_of(f"{whole}{word}") == size_of(f" {whole} {word.lower()} ") == whole * size


@pytest.mark.parametrize("text", ["", "MB", "-5", "1e9", "1TB", "1,000", "1.5.2", "٣", "1" * 19, "5 0"])
def test_what_is_no_size_is_none(text: str) -> None:
    """Signs, exponents, unknown units and digits of other scripts are refused."""
    assert size_of(text) is None
