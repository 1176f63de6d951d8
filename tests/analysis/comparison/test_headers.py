"""What two headers differ in, in plain words and in any shape a stranger may give them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spectrace.analysis.comparison.headers import compare_headers, shown_value
from tests.strategies import json_values, runs


def told(one: Any, other: Any) -> list[tuple[str, str, str]]:
    """Words and values as they are shown."""
    return [(i.words, shown_value(i.a), shown_value(i.b)) for i in compare_headers(one, other)]


def test_known_facts_come_first_and_in_words() -> None:
    """The engine before its flags, and what both give before what one lacks."""
    one = {"engine": {"flags": {"max_num_seqs": 8}, "name": "vllm", "version": "0.33.0"}, "method": "eagle3"}
    other = {"engine": {"flags": {"max_num_seqs": 9}, "name": "sglang"}, "method": "eagle3"}
    assert told(one, other) == [
        ("engine", "vllm", "sglang"),
        ("engine's max num seqs", "8", "9"),
        ("engine version", "0.33.0", "not given"),
    ]


def test_dates_and_measurements_are_not_compared() -> None:
    """Two recordings of one run differ in nothing."""
    one = {"created": "a", "baseline": {"token_ns": 1}, "capture": {"unavailable": {"taps": "why"}}}
    assert told(one, {"created": "b", "baseline": {"token_ns": 2}, "capture": {}}) == []


def test_what_is_empty_and_what_is_missing_say_the_same() -> None:
    """An empty list of processors is none; a flag that is off is not the same as one not given."""
    assert told({"sampling": {"processors": []}}, {"sampling": {}}) == []
    assert told({"sampling": {"seed": 0}}, {}) == [("seed", "0", "not given")]


def test_a_map_is_compared_by_content() -> None:
    """Not the table is shown but how much of it differs, and where first."""
    one = {"vocab_map": {"d2t": [0, 0, 5, 6], "digest": "sha256:" + "a" * 64}}
    other = {"vocab_map": {"d2t": [0, 0, 7, 8], "digest": "sha256:" + "b" * 64}}
    assert told(one, other) == [
        ("map's digest", "aaaaaaaa", "bbbbbbbb"),
        ("map's table d2t, 2 of 4 entries differ", "[2] = 5", "[2] = 7"),
    ]


def test_weights_are_compared_by_name_and_digest() -> None:
    """One missing, one that differs; an RMS that was rounded otherwise is no difference."""
    one = {"x": {"rms": 0.5, "digest": "s"}, "y": {"rms": 0.25, "digest": "t"}, "z": {"rms": 1.0}}
    other = {"x": {"rms": 0.50001, "digest": "s"}, "y": {"rms": 0.75, "digest": "u"}}
    assert told({"draft": {"fingerprints": one}}, {"draft": {"fingerprints": other}}) == [
        ("draft's weights in A only, 1", "z", "none"),
        ("draft's weights, 1 of 2 differ: y", "RMS 0.25", "RMS 0.75"),
    ]


def test_a_value_is_short_and_visible() -> None:
    """Whatever a header holds, one line shows it."""
    assert shown_value("a\x1b[31m\u202e") == "a\\x1b[31m\\u202e"
    assert len(shown_value("x" * 5000)) <= 60
    assert len(shown_value([["y" * 50] * 50] * 50)) <= 60


@settings(max_examples=60, deadline=None)
@given(runs | st.dictionaries(st.text(max_size=5), json_values, max_size=4), runs)
def test_any_header_can_be_compared(one: Any, other: Any) -> None:
    """No shape breaks it; what is compared with itself does not differ."""
    for item in compare_headers(one, other):
        assert "\n" not in shown_value(item.a) + shown_value(item.b)
        json.dumps(item.to_mapping(), default=str)
    assert compare_headers(one, one) == []
