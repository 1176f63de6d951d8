"""Hypothesis strategies for every record of a trace, and what a reader must say of what was written.

Values come in the JSON shape of the trace model, as a recorder gives them; `as_read` turns a step's
fields into what its `Step` must hold. Writes and reads nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from spectrace.format.fields import FIELD_BY_NAME, FIELDS

Fields = dict[str, Any]

texts = st.text(st.characters(), max_size=12)
"""Any text, lone surrogates included."""
names = st.sampled_from(["r0", "r1", "", "req-\x1b[31m", "\ud800", "名前", "a\nb"])
"""Names of requests, few so that steps share them."""
token_ids = st.one_of(st.integers(0, 300), st.integers(0, 151_935), st.integers(-(2**63), 2**63 - 1))
counts = st.one_of(st.integers(0, 40), st.integers(-(2**63), 2**63 - 1))
numbers = st.floats(allow_nan=True, allow_infinity=True)
logprobs = st.one_of(st.floats(-20.0, 0.0, width=32), numbers, st.integers(-5, 5))


def _json(integers: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | integers | numbers | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=6,
    )


json_values = _json(st.integers())
"""Any JSON, NaN and infinities included."""
stored_values = _json(st.integers(-(2**63), 2**64 - 1))
"""The same with the integers that msgpack holds."""


def _keys_but(known: frozenset[str]) -> st.SearchStrategy[str]:
    return texts.filter(lambda key: key not in known)


def _unknown(known: frozenset[str]) -> st.SearchStrategy[Fields]:
    return st.dictionaries(_keys_but(known), json_values, max_size=2)


def _some(values: st.SearchStrategy[Any], size: int, *, holes: bool = False) -> st.SearchStrategy[Any]:
    """Lists of one length, or of any; with null elements where asked for."""
    element = st.none() | values if holes else values
    exact = st.lists(element, min_size=size, max_size=size)
    return st.one_of(exact, exact, exact, st.lists(element, max_size=4))


def _tops(size: int) -> st.SearchStrategy[Any]:
    pair: st.SearchStrategy[Any] = st.tuples(token_ids, logprobs).map(list)
    return _some(st.lists(pair, max_size=3), size)


_TAP_KEYS = frozenset(
    ("dtype", "boundary", "index", "position", "shape", "rms", "nonfinite", "projections", "extra")
)
taps = st.builds(
    lambda known, unknown: {**unknown, **known},
    st.fixed_dictionaries(
        {
            "shape": st.lists(st.integers(0, 4096), max_size=3),
            "dtype": st.sampled_from(["bfloat16", "float32"]),
        },
        optional={
            "boundary": st.integers(0, 40),
            "index": st.integers(0, 40),
            "position": counts,
            "rms": numbers,
            "nonfinite": st.integers(0, 9),
            "projections": st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=4),
        },
    ),
    _unknown(_TAP_KEYS),
)
draft_inputs = st.builds(
    lambda known, unknown: {**unknown, **known},
    st.fixed_dictionaries({}, optional={"rms": numbers, "token_position": counts}),
    _unknown(frozenset(("rms", "token_position", "extra"))),
)
nonfinites = st.builds(
    lambda known, unknown: {**unknown, **known},
    st.fixed_dictionaries({}, optional={"draft_logits": counts, "target_logits": counts}),
    _unknown(frozenset(("draft_logits", "target_logits", "extra"))),
)


def _optional_fields(size: int) -> dict[str, st.SearchStrategy[Any]]:
    """A strategy for each field that may be missing, for a proposal of ``size`` tokens."""
    found: dict[str, st.SearchStrategy[Any]] = {
        "draft_inputs": st.lists(draft_inputs, max_size=3),
        "draft_top": _tops(size),
        "target_top": _tops(size + 1),
        "taps": st.lists(taps, max_size=3),
        "nonfinite": nonfinites,
        "parents": st.tuples(*(st.integers(-1, at - 1) for at in range(size))).map(list),
    }
    kinds = {"int": counts, "float": logprobs, "str": texts}
    for field in FIELDS:
        if field.required or field.name in found or field.name == "extra":
            continue
        values = kinds[field.leaves[0].kind]
        if field.shape == "scalar":
            found[field.name] = values
        else:
            length = size + 1 if field.size == "K+1" else size
            found[field.name] = _some(values, length, holes=True)
    return found


@st.composite
def steps(draw: st.DrawFn) -> Fields:
    """Fields of one step: a chain, a tree or a prefill, with any of the optional fields."""
    size = draw(st.sampled_from([0, 1, 3, 3, 3, 5]))
    required = {
        "request": names,
        "step": st.integers(0, 9) | counts,
        "position": counts,
        "proposal_ids": st.lists(token_ids, min_size=size, max_size=size),
        "num_accepted": st.integers(0, size) | counts,
        "emitted_ids": st.lists(token_ids, max_size=size + 1),
    }
    optional = _optional_fields(size)
    chosen = draw(st.sets(st.sampled_from(sorted(optional)), max_size=12))
    fields = draw(st.fixed_dictionaries(required | {name: optional[name] for name in sorted(chosen)}))
    return {**draw(_unknown(frozenset(FIELD_BY_NAME))), **fields}


runs = st.fixed_dictionaries(
    {},
    optional={
        "created": texts,
        "engine": st.fixed_dictionaries(
            {}, optional={"name": texts, "flags": st.dictionaries(texts, stored_values, max_size=2)}
        ),
        "method": st.sampled_from(["draft_model", "eagle3"]),
        "target": st.fixed_dictionaries({}, optional={"id": texts, "vocab_size": st.integers(0, 2**40)}),
        "vocab_map": st.none() | st.fixed_dictionaries({"d2t": st.lists(st.integers(0, 9), max_size=3)}),
        "sampling": st.fixed_dictionaries({}, optional={"temperature": numbers | st.integers(0, 2)}),
        "future": st.none() | st.booleans() | texts,
    },
)
"""Headers; null, unknown keys and any text included."""

requests = st.fixed_dictionaries(
    {"request": names},
    optional={
        "prompt_ids": st.lists(st.integers(0, 151_935), max_size=5),
        "prompt_digest": texts,
        "external_id": texts,
        "segment_map": st.none() | texts | st.lists(st.integers(0, 9), max_size=3),
    },
)
token_tables = st.fixed_dictionaries(
    {}, optional={space: st.dictionaries(st.integers(0, 2**40), texts) for space in ("target", "draft")}
)
references = st.fixed_dictionaries(
    {
        "boundary": st.integers(0, 99),
        "rows": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "position": st.integers(0, 9),
                    "rms": numbers,
                    "projections": st.lists(numbers, max_size=3),
                },
            ),
            max_size=2,
        ),
    },
    optional={"request": names},
)


# --- what a reader must say --------------------------------------------------------------------


def as_read(fields: Mapping[str, Any]) -> Fields:
    """A step's fields as its `Step` holds them: tuples, numbers of the field's kind, extra as text."""
    unknown = {key: value for key, value in fields.items() if key not in FIELD_BY_NAME}
    found: Fields = {}
    for field in FIELDS:
        value = fields.get(field.name)
        if value is not None:
            found[field.name] = _read_value(field.name, field.leaves[0].kind, value)
    if unknown:
        found["extra"] = json.dumps(unknown, ensure_ascii=False, separators=(",", ":"))
    return found


def _read_value(name: str, kind: str, value: Any) -> Any:
    if name in ("draft_top", "target_top"):
        return tuple(tuple((token, float(logprob)) for token, logprob in node) for node in value)
    if name == "nonfinite":
        return dict(value)
    if name == "draft_inputs":
        return tuple({k: v for k, v in item.items() if k != "rms" or v is not None} for item in value)
    if name == "taps":
        return tuple(
            {k: tuple(v) if k in ("shape", "projections") else v for k, v in tap.items()} for tap in value
        )
    if isinstance(value, list):
        return tuple(None if item is None else _number(kind, item) for item in value)
    return _number(kind, value)


def _number(kind: str, value: Any) -> Any:
    return float(value) if kind == "float" else value


def same(a: Any, b: Any) -> bool:
    """Equal in value and type, NaN equal to NaN, lists equal to tuples, keys in any order."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)
