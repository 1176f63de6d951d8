"""Numbers as they are written, and sizes as they are typed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrace.format.figures import count_of, number, size_of, value_text


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


def test_a_long_value_says_how_much_more_there_is() -> None:
    """Of a list and of a mapping the first are written, and how many are left."""
    assert value_text(list(range(1000))).endswith("14, 15, and 984 more")
    assert value_text({f"rank_{rank}": True for rank in range(17)}).endswith("rank 15 yes, and 1 more")


def test_a_value_nested_without_end_is_cut() -> None:
    """A stranger's settings are written a few levels deep."""
    value: list[object] = []
    for _ in range(500):
        value = [value, "x" * 1000]
    assert len(value_text(value)) < 2000


@given(st.integers(0, 10**15), st.sampled_from([("", 1), ("kB", 10**3), ("MiB", 1 << 20), ("G", 1 << 30)]))
def test_a_size_is_its_number_of_units(whole: int, unit: tuple[str, int]) -> None:
    """Bytes in thousands, in 1024s, or plain, to the last byte."""
    word, size = unit
    assert size_of(f"{whole}{word}") == size_of(f" {whole} {word.lower()} ") == whole * size


@pytest.mark.parametrize("text", ["", "MB", "-5", "1e9", "1TB", "1,000", "1.5.2", "٣", "1" * 19, "5 0"])
def test_what_is_no_size_is_none(text: str) -> None:
    """Signs, exponents, unknown units and digits of other scripts are refused."""
    assert size_of(text) is None
