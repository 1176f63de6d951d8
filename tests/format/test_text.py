"""Text from a stranger's trace is shown so that no terminal acts on it and nobody is misled."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrace.format.text import visible


@given(st.text(st.characters()))
def test_what_is_shown_is_printable(text: str) -> None:
    """Any text, lone surrogates included, becomes characters that are printable and can be encoded."""
    shown = visible(text)
    assert shown.isprintable()
    shown.encode()
    assert not any(unicodedata.category(char)[0] in "CZ" and char != " " for char in shown)
    assert not any(unicodedata.bidirectional(char) in ("LRE", "RLE", "LRO", "RLO", "PDF") for char in shown)


@given(st.text(st.characters()), st.text(st.characters()))
def test_different_texts_are_shown_differently(a: str, b: str) -> None:
    """Escapes are unambiguous: two texts that look the same are the same."""
    assert (visible(a) == visible(b)) == (a == b)


@given(st.text(st.characters(), max_size=40), st.integers(0, 20))
def test_a_limit_holds(text: str, limit: int) -> None:
    """The result is never longer than the limit and never ends in the middle of an escape unmarked."""
    shown = visible(text, limit=limit)
    assert len(shown) <= max(limit, 1)
    assert shown == visible(text) or shown.endswith("…")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, 42%", "plain text, 42%"),
        ("naïve 名前 🙂", "naïve 名前 🙂"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x1b]52;c;ZXZpbA==\x07", r"\x1b]52;c;ZXZpbA==\x07"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("back\\slash", r"back\\slash"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("\u2028\u2029\u00a0", r"\u2028\u2029\xa0"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("a\ufe0f", r"a\ufe0f"),
        ("\ue000", r"\ue000"),
        ("\u3164", r"\u3164"),
        ("[bold]x[/]", "[bold]x[/]"),
    ],
)
def test_nasty_texts(text: str, shown: str) -> None:
    """Terminal escapes, bidi controls, invisible characters and surrogates are spelled out; markup is not."""
    assert visible(text) == shown
