"""The expressions of `steps --where` and of the viewer's filter: ``accepted < 2 and position > 2048``.

Owns grammar, field names and their types. A text is parsed by hand into comparisons of fields with
constants; nothing is evaluated by Python, so that an expression out of a bug report is only ever data.

    condition   := any of: condition or condition | condition and condition | not condition
                   | ( condition ) | operand | comparison
    comparison  := operand (< | <= | > | >= | == | !=) operand, chained as in 1 <= accepted < 4
                   | operand [not] in operand
    operand     := field | number | "text"

A value that a step lacks equals nothing, holds nothing, and is neither less nor greater: only != and not in
fit it. A step without a proposal has no number of accepted tokens. A field alone is true when it is there and
is neither zero nor empty.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn

from spectrace.errors import UsageError
from spectrace.format.fields import EXTRA, FIELDS, REQUEST, Field
from spectrace.format.records import Step

MAX_LENGTH = 1_000
"""Characters of an expression."""
MAX_DEPTH = 50
"""Nested parentheses and negations."""


def _accepted(step: Step) -> int | None:
    """Nothing was accepted or refused where nothing was proposed, as in a prefill."""
    return step.num_accepted if step.proposal_ids else None


_DERIVED: dict[str, tuple[str, Callable[[Step], Any]]] = {
    "accepted": ("number", _accepted),
    "num_accepted": ("number", _accepted),
    "drafted": ("number", lambda step: len(step.proposal_ids)),
    "emitted": ("number", lambda step: len(step.emitted_ids)),
}
"""What is not read as it is stored, and short words for what is asked most: name -> type, value."""


def _field_type(field: Field) -> str | None:
    if field.name == EXTRA:
        return None
    # A request is stored as a number and read as its name.
    kind = "text" if field.name == REQUEST or field.leaves[0].kind == "str" else "number"
    return {"scalar": kind, "list": f"list of {kind}s"}.get(field.shape)


NAMES: dict[str, str] = {
    **{name: kind for name, (kind, _) in _DERIVED.items()},
    **{field.name: kind for field in FIELDS if (kind := _field_type(field)) is not None},
}
"""Every name an expression may use -> number, text, list of numbers or list of texts."""


@dataclass(frozen=True, slots=True)
class Where:
    """A parsed expression.

    >>> from spectrace.testing import make_step
    >>> where = parse_where("accepted < 2 and 'prefill' not in flags")
    >>> where.matches(make_step(proposal_ids=[7, 8, 9], num_accepted=1, flags=["replay"]))
    True
    """

    text: str
    matches: Callable[[Step], bool]
    """Whether a step fulfils the expression; never raises."""
    fields: frozenset[str] = frozenset()
    """Recorded fields that it names."""


def parse_where(text: str) -> Where:
    """Reads an expression.

    Args:
        text: as typed.

    Raises:
        UsageError: it is not an expression, names no field, or compares what cannot be compared; the
            sentence says at which character.
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"the expression is longer than {MAX_LENGTH:,} characters")
    parser = _Parser(text)
    return Where(text, parser.parse(), frozenset(parser.fields))


# --- parsing -------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<text>"[^"]*"|'[^']*')
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign><=|>=|==|!=|<|>|\(|\))
    )""",
    re.VERBOSE,
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_WORDS = ("and", "or", "not", "in")
_HINTS = {"=": "write ==", "&": "write and", "|": "write or", "!": "write not or !="}

Condition = Callable[[Step], bool]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """number, text, word, sign or end."""
    text: str
    at: int
    """Number of its first character, from 1."""


@dataclass(frozen=True, slots=True)
class _Operand:
    kind: str
    value: Callable[[Step], Any]
    token: _Token


class _Parser:
    """Recursive descent, one method per line of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _split(text)
        self._next = 0
        self._depth = 0
        self.fields: set[str] = set()
        """Recorded fields that were named."""

    def parse(self) -> Condition:
        condition = self._either()
        if self._token.kind != "end":
            _fail(self._token, "expected and, or, or the end")
        return condition

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *texts: str) -> str | None:
        """The next token's text when it is one of these, which it then consumes."""
        token = self._token
        text = token.text.lower() if token.kind == "word" else token.text
        if token.kind not in ("word", "sign") or text not in texts:
            return None
        self._next += 1
        return text

    def _either(self) -> Condition:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda step: any(part(step) for part in parts)

    def _both(self) -> Condition:
        parts = [self._negation()]
        while self._take("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else lambda step: all(part(step) for part in parts)

    def _negation(self) -> Condition:
        token = self._token
        if not (negated := self._take("not", "(")):
            return self._comparison()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            _fail(token, f"more than {MAX_DEPTH} conditions within each other")
        inner = self._negation() if negated == "not" else self._either()
        if negated == "(" and not self._take(")"):
            _fail(self._token, "expected )")
        self._depth -= 1
        return (lambda step: not inner(step)) if negated == "not" else inner

    def _comparison(self) -> Condition:
        left = self._operand()
        parts: list[Condition] = []
        while sign := self._take(*_COMPARISONS, "in", "not"):
            token = self._tokens[self._next - 1]
            if sign == "not" and not self._take("in"):
                _fail(self._token, "expected in")
            right = self._operand()
            parts.append(_compared(left, sign, right, token))
            left = right
        if parts:
            return parts[0] if len(parts) == 1 else lambda step: all(part(step) for part in parts)
        if left.token.kind != "word":
            _fail(left.token, "a constant is no condition: compare it with a field")
        return lambda step: bool(left.value(step))

    def _operand(self) -> _Operand:
        token = self._token
        if token.kind in ("end", "sign") or token.text.lower() in _WORDS:
            _fail(token, "expected a field, a number or a quoted text")
        self._next += 1
        if token.kind == "number":
            number = _number(token)
            return _Operand("number", lambda step: number, token)
        if token.kind == "text":
            text = token.text[1:-1]
            return _Operand("text", lambda step: text, token)
        operand = _field(token)
        self.fields |= {token.text} - _DERIVED.keys()
        return operand


def _split(text: str) -> list[_Token]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            _fail(_Token("sign", text[at], at + 1), _HINTS.get(text[at], "expected something else"))
        kind = match.lastgroup or ""
        tokens.append(_Token(kind, match[kind], match.start(kind) + 1))
        at = match.end()
    return [*tokens, _Token("end", "", end + 1)]


def _number(token: _Token) -> int | float:
    digits = token.text.replace("_", "")
    return int(digits) if re.fullmatch(r"-?[0-9]+", digits) else float(digits)


def _field(token: _Token) -> _Operand:
    name = token.text
    if name not in NAMES:
        if name == "external_id":
            _fail(token, "it is a request's, not a step's: steps --request takes it")
        near = near_fields(name)
        hint = f"did you mean {near}" if near else 'put texts in quotes: stop == "eos"'
        _fail(token, f"no such field, {hint}")
    derived = _DERIVED.get(name)
    return _Operand(NAMES[name], derived[1] if derived else operator.attrgetter(name), token)


def near_fields(name: str) -> str:
    """Other fields with the word in their name, as rank is in target_ranks, else one spelt like it, or "".

    >>> near_fields("rank"), near_fields("acepted")
    ('target_ranks', 'accepted')
    """
    others = [field for field in NAMES if field != name]
    stem = name.lower().rstrip("s")
    holding = [field for field in others if len(stem) > 1 and f"_{stem}" in f"_{field}"]
    if holding:
        return " or ".join(get_close_matches(name, holding, n=2, cutoff=0.0))
    return "".join(get_close_matches(name, others, n=1, cutoff=0.5))


def _compared(left: _Operand, sign: str, right: _Operand, token: _Token) -> Condition:
    """The comparison as a function of a step; its types are checked here, once."""
    if sign in ("in", "not"):
        if right.kind not in (f"list of {left.kind}s", "text") or (
            right.kind == "text" and left.kind != "text"
        ):
            _fail(token, f"cannot look for a {left.kind} in a {right.kind}")
        return _membership(left.value, right.value, sign == "in")
    if left.kind != right.kind or left.kind not in ("number", "text"):
        for group, item in ((left, right), (right, left)):
            if group.kind == f"list of {item.kind}s":
                name = group.token.text
                _fail(token, f"{name} is a list: write {item.token.text} in {name}")
        _fail(token, f"cannot compare a {left.kind} with a {right.kind}")
    holds, first, second = _COMPARISONS[sign], left.value, right.value
    if_missing = sign == "!="

    def matches(step: Step) -> bool:
        a, b = first(step), second(step)
        return if_missing if a is None or b is None else holds(a, b)

    return matches


def _membership(item: Callable[[Step], Any], group: Callable[[Step], Any], wanted: bool) -> Condition:
    def matches(step: Step) -> bool:
        a, b = item(step), group(step)
        return (a is not None and b is not None and a in b) is wanted

    return matches


def _fail(token: _Token, what: str) -> NoReturn:
    found = f'"{token.text}"' if token.text else "the end"
    found = "".join(c if c.isprintable() else repr(c)[1:-1] for c in found)
    raise UsageError(f"{found} at character {token.at}: {what}")
