"""The expressions of `steps --where`: what they mean, and that nothing else can come of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spectrace.analysis.where import MAX_DEPTH, MAX_LENGTH, NAMES, parse_where
from spectrace.errors import UsageError
from spectrace.format.records import Step
from spectrace.testing import make_step

STEP = make_step(
    request="r7",
    step=3,
    position=2048,
    proposal_ids=[11, 12, 13],
    num_accepted=1,
    emitted_ids=[11, 99],
    final_kind="corrected",
    target_gaps=[0.5, 0.25, 1.5, 2.0],
    flags=["replay"],
    step_ns=0,
)


@pytest.mark.parametrize(
    "text",
    [
        "accepted < 2 and position > 2047",
        "accepted == 1 and drafted == 3 and emitted == 2",
        "num_accepted<2",
        "1 <= accepted < 2 <= drafted",
        "position == 2_048.0 and position != -2",
        "final_kind == 'corrected' and \"r7\" == request",
        "not final_kind == 'bonus'",
        "NOT (accepted > 1 OR drafted > 3)",
        "99 in emitted_ids and 12 not in emitted_ids",
        "'prefill' not in flags and 'replay' in flags",
        "'7' in request",
        "0.25 in target_gaps",
        "flags and not stop and not step_ns",
        "stop or accepted",
        "accepted > 5 and drafted > 5 or step == 3",
        "accepted > .5e0 and drafted>accepted",
        "-1 < accepted",
    ],
)
def test_what_is_true_of_the_step(text: str) -> None:
    """Each of these holds for the step above."""
    assert parse_where(text).matches(STEP)


@pytest.mark.parametrize(
    "text", ["rank == 1", "rank < 1", "rank > 1", "stop == 'eos'", "0 in draft_ids", "'a' in stop", "rank"]
)
def test_a_missing_field_equals_nothing_and_holds_nothing(text: str) -> None:
    """A field that the step lacks is no zero: it only differs from everything."""
    assert not parse_where(text).matches(STEP)


@pytest.mark.parametrize("name", ["accepted", "num_accepted"])
def test_a_step_without_a_proposal_has_no_number_of_accepted_tokens(name: str) -> None:
    """A prefill is not listed among the steps that accepted little."""
    prefill = make_step(proposal_ids=[], num_accepted=0, emitted_ids=[7])
    for text in (f"{name} < 2", f"{name} == 0", f"{name} >= 0", name):
        assert not parse_where(text).matches(prefill)
    assert parse_where("drafted == 0").matches(prefill)
    assert parse_where(f"{name} == 0").matches(make_step(proposal_ids=[1], num_accepted=0))


@pytest.mark.parametrize("text", ["rank != 1", "stop != 'eos'", "0 not in draft_ids", "'a' not in stop"])
def test_a_missing_field_differs_from_everything(text: str) -> None:
    """`!=` and `not in` are the opposite of `==` and `in`, also for a field that is not there."""
    assert parse_where(text).matches(STEP)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("accptd < 2", '"accptd" at character 1: no such field, did you mean accepted'),
        ("stop == eos", '"eos" at character 9: no such field, put texts in quotes: stop == "eos"'),
        ("accepted = 2", '"=" at character 10: write =='),
        ("accepted < 2 && stop", '"&" at character 14: write and'),
        ("accepted < 'a'", '"<" at character 10: cannot compare a number with a text'),
        ("stop < 3", '"<" at character 6: cannot compare a text with a number'),
        ("emitted_ids < 3", '"<" at character 13: emitted_ids is a list: write 3 in emitted_ids'),
        ("'a' in emitted_ids", '"in" at character 5: cannot look for a text in a list of numbers'),
        ("1 in stop", '"in" at character 3: cannot look for a number in a text'),
        ("accepted <", "the end at character 11: expected a field, a number or a quoted text"),
        ("", "the end at character 1: expected a field, a number or a quoted text"),
        ("(accepted < 2", "the end at character 14: expected )"),
        ("accepted < 2 position", '"position" at character 14: expected and, or, or the end'),
        ("3", '"3" at character 1: a constant is no condition: compare it with a field'),
        ("accepted not 3", '"3" at character 14: expected in'),
        ("stop == 'eos", '"\'" at character 9: expected something else'),
        ("taps == 3", '"taps" at character 1: no such field, did you mean'),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, sentence: str) -> None:
    """What, where, what now."""
    with pytest.raises(UsageError) as caught:
        parse_where(text)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "(lambda: 1)()",
        "step.request",
        "step.__class__",
        "request[0] == 'r'",
        "len(emitted_ids) > 1",
        "[x for x in emitted_ids]",
        "print(1)",
        "1 + 1 == 2",
        "accepted ** 9 ** 9 > 1",
        "f'{accepted}' == '1'",
        "True",
        "None == stop",
        "open == 1",
        "accepted if stop else drafted",
        "accepted := 3",
    ],
)
def test_nothing_of_python_but_comparisons_gets_through(text: str) -> None:
    """Calls, attributes, indexing, arithmetic and names of Python are refused, not evaluated."""
    with pytest.raises(UsageError):
        parse_where(text)


def test_nesting_and_length_are_bounded() -> None:
    """An endless expression is refused before it can exhaust anything."""
    assert parse_where("(" * MAX_DEPTH + "accepted" + ")" * MAX_DEPTH).matches(STEP)
    for text in ("(" * 400 + "accepted" + ")" * 400, "not " * 200 + "stop", "1 < " * MAX_LENGTH + "2"):
        with pytest.raises(UsageError):
            parse_where(text)


# --- laws ------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *NAMES,
        *("and", "or", "not", "in", "(", ")", "<", "<=", "==", "!=", "=", ".", "[", "'", '"', "'eos'", "-"),
        *("0", "1", "2.5", "-3", "1e999", "9" * 400, "lambda", "__import__", "\x00", "\x1b", "\ud800", "é"),
    ]
)
STEPS = st.builds(
    lambda k, a, **optional: make_step(
        proposal_ids=list(range(k)),
        num_accepted=min(k, a),
        **{name: value for name, value in optional.items() if value is not None},
    ),
    st.integers(0, 5),
    st.integers(0, 5),
    position=st.integers(0, 9),
    rank=st.none() | st.integers(-3, 3),
    stop=st.none() | st.sampled_from(["eos", "length", ""]),
    target_gaps=st.none() | st.lists(st.floats(width=32), max_size=3),
    draft_ids=st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3),
)


@given(st.lists(PIECES, max_size=14).map(" ".join) | st.text(max_size=60), STEPS)
def test_any_text_is_an_expression_or_a_usage_error(text: str, step: Step) -> None:
    """Whatever is typed, nothing but UsageError is raised, and a sound expression never fails on a step."""
    sentence = ""
    try:
        where = parse_where(text)
    except UsageError as error:
        sentence = str(error)
    else:
        assert where.matches(step) in (True, False)
    assert sentence.isprintable()


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> tuple[str, Callable[[dict[str, Any]], bool]]:
    """A sound expression over accepted, drafted and position, and what it means."""
    kind = draw(st.sampled_from(["compare", "chain", "not", "and", "or"] if depth else ["compare"]))
    if kind in ("compare", "chain"):
        names = st.sampled_from(["accepted", "drafted", "position"])
        operands = names | st.integers(-1, 6).map(str)
        signs = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
        text = f"{draw(names)} {draw(signs)} {draw(operands)}"
        if kind == "chain":
            text += f" {draw(signs)} {draw(operands)}"
        return text, lambda values: bool(eval(text, {"__builtins__": {}}, values))
    left, means_left = draw(conditions(depth=depth - 1))
    if kind == "not":
        return f"not ({left})", lambda values: not means_left(values)
    right, means_right = draw(conditions(depth=depth - 1))
    if kind == "and":
        return f"({left}) and ({right})", lambda values: means_left(values) and means_right(values)
    return f"({left}) or ({right})", lambda values: means_left(values) or means_right(values)


@given(conditions(), STEPS)
def test_comparisons_mean_what_they_mean_in_python(
    condition: tuple[str, Callable[[dict[str, Any]], bool]], step: Step
) -> None:
    """Comparisons, chains, not, and, or agree with Python's on every step with a proposal."""
    assume(step.proposal_ids)
    text, meaning = condition
    values = {"accepted": step.num_accepted, "drafted": len(step.proposal_ids), "position": step.position}
    assert parse_where(text).matches(step) == meaning(values)


@given(conditions(depth=1), conditions(depth=1), conditions(depth=1), STEPS)
def test_and_binds_closer_than_or(
    a: tuple[str, Any], b: tuple[str, Any], c: tuple[str, Any], step: Step
) -> None:
    """`a or b and c` is `a or (b and c)`, as in Python."""
    bare = parse_where(f"{a[0]} or {b[0]} and {c[0]}") if "or" not in a[0] + b[0] + c[0] else None
    grouped = parse_where(f"({a[0]}) or (({b[0]}) and ({c[0]}))")
    if bare is not None:
        assert bare.matches(step) == grouped.matches(step)
