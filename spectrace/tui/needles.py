"""What a reader looks for, told for whole chunks at once: a text, an id, or an expression.

`needle_for` decides which of them was typed. A text or an id is found in columns, without decoding a step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from spectrace.analysis.where import NAMES, Where, near_fields, parse_where
from spectrace.format.columns import Array, Column
from spectrace.format.fields import LEAF_BY_PATH
from spectrace.format.joining import joined_columns
from spectrace.format.tracefile import TraceFile
from spectrace.tui.loader import Loader, Piece

_SEARCHED = ("proposal_ids", "emitted_ids")
_NUMBERS = tuple(LEAF_BY_PATH[path].number for path in ("request", *_SEARCHED))
_MOST_IDS = 1 << 22
"""Ids from here on have no text: no vocabulary is that large."""
_FIELD = "|".join(NAMES)
_SIGN = r"(<|>|==|!=|\bin\b|\bnot\s+in\b)"
_EXPRESSION = re.compile(
    rf"""\b({_FIELD})\b\s*{_SIGN} | {_SIGN}=?\s*({_FIELD})\b | \bnot\s+({_FIELD})\b
      | [A-Za-z_]\w*\s*(<=|>=|==|!=|<|>|=)\s*(-?\.?\w|["']) | \d\s*(<=|>=|==|!=|<|>|=)\s*[A-Za-z_]
      | [A-Za-z_]\w*\s+(<=|>=|==|!=|<|>|=)\s*$ | ["']\s+(not\s+)?in\s+[A-Za-z_]""",
    re.VERBOSE,
)
"""A field beside a comparison, or a comparison with a word on one side and something on the other: an
expression, be it a wrong one. A sign alone and a word in angle brackets may be a token."""
_QUOTED = re.compile(r"""(["'])(.*)\1""")


class Needle(Protocol):
    """Something to look for."""

    text: str
    """As it was typed."""

    def rows_in(self, pieces: Sequence[Piece]) -> Array:
        """Numbers of the steps that match, ascending; the pieces follow each other in one file."""


def needle_for(text: str, loader: Loader) -> Needle:
    """The needle that a reader typed; a text that looks like an expression is looked for in quotes.

    Raises:
        UsageError: it is an expression, and a wrong one.
    """
    if _EXPRESSION.search(text):
        quoted = _QUOTED.fullmatch(text)
        if quoted is not None and quoted[1] not in quoted[2]:
            return TextNeedle(quoted[2], loader)
        return ExpressionNeedle(parse_where(text))
    return TextNeedle(text, loader)


class ExpressionNeedle:
    """Steps that fulfil an expression such as ``accepted < 2 and position > 2048``."""

    def __init__(self, where: Where) -> None:
        self.text = where.text
        self._matches = where.matches
        self._unseen = set(where.fields)
        """Fields that no step had so far."""

    def rows_in(self, pieces: Sequence[Piece]) -> Array:
        """Numbers of the steps that match, ascending."""
        found = []
        for piece in pieces:
            for row in range(piece.chunk.num_rows):
                step = piece.chunk.step(row)
                if self._unseen:
                    self._unseen = {name for name in self._unseen if getattr(step, name) is None}
                if self._matches(step):
                    found.append(piece.row + row)
        return np.array(found, np.int64)

    def missing_words(self) -> str:
        """Which field no step had, for an expression that matched nothing; "" where all were met."""
        if not self._unseen:
            return ""
        name = min(self._unseen)
        near = near_fields(name)
        return f"no step has {name}" + (f", did you mean {near}" if near else "")


class AllBut:
    """The steps that another needle does not match."""

    def __init__(self, needle: Needle) -> None:
        self.text = f"!{needle.text}"
        self._needle = needle

    def rows_in(self, pieces: Sequence[Piece]) -> Array:
        """Numbers of the steps that match, ascending."""
        return np.setdiff1d(_rows_of(pieces), self._needle.rows_in(pieces), assume_unique=True)


class Within:
    """The steps that a needle matches among those that another one does."""

    def __init__(self, needle: Needle, among: Needle) -> None:
        self.text = needle.text
        self.wanted = needle
        self._needles = needle, among

    def rows_in(self, pieces: Sequence[Piece]) -> Array:
        """Numbers of the steps that match, ascending."""
        first, second = (needle.rows_in(pieces) for needle in self._needles)
        return np.intersect1d(first, second, assume_unique=True)


class TextNeedle:
    """What is looked for: a text within a token or a request name, or a token id.

    Lower case finds upper case too, as in less; a number finds the id, and texts with these digits.

    Args:
        text: what is looked for.
        loader: where texts and names come from.
        only_id: look for this token id and nothing else; `text` is what is shown.
    """

    def __init__(self, text: str, loader: Loader, *, only_id: int | None = None) -> None:
        self.text = text
        self._loader = loader
        self._fold = text == text.lower()
        self._is_text = only_id is None
        typed = int(text) if text.isdecimal() and len(text) < 19 else None
        self._id = typed if self._is_text else only_id
        self._known = np.zeros(0, np.bool_)
        self._matches = np.zeros(0, np.bool_)
        self._requests: dict[TraceFile, dict[int, bool]] = {}
        """Which requests match, by their numbers in each file."""

    def rows_in(self, pieces: Sequence[Piece]) -> Array:
        """Numbers of the steps that match, ascending."""
        found = np.zeros(sum(piece.chunk.num_rows for piece in pieces), np.bool_)
        columns = joined_columns([piece.chunk for piece in pieces], _NUMBERS)
        for path in _SEARCHED:
            if path in columns:
                self._mark(columns[path], found)
        if "request" in columns and self._is_text:
            self._mark_requests(columns["request"], pieces[0], found)
        return _rows_of(pieces)[found] if found.any() else np.zeros(0, np.int64)

    def _mark_requests(self, column: Column, piece: Piece, found: Array) -> None:
        known = self._requests.setdefault(piece.part, {})
        for number in set(column.values.tolist()):
            if number not in known:
                known[number] = self._is_in(self._loader.request_name(piece, number))
            if known[number]:
                rows = np.arange(len(found)) if column.present is None else column.present.nonzero()[0]
                found[rows[column.values == number]] = True

    def _mark(self, column: Column, found: Array) -> None:
        hits = self._matching(column.values)
        if not hits.any():
            return
        rows = np.arange(len(found)) if column.present is None else column.present.nonzero()[0]
        slots = np.repeat(rows, column.lengths[0])
        if column.known is not None:
            slots = slots[column.known]
        found[slots[hits]] = True

    def _matching(self, ids: Array) -> Array:
        """Which of the ids match, each text looked at once."""
        if not len(ids):
            return np.zeros(0, np.bool_)
        if not self._is_text:
            only: Array = ids == self._id
            return only
        sound = (ids >= 0) & (ids < _MOST_IDS)
        safe = np.where(sound, ids, 0).astype(np.int64)
        self._grow(int(safe.max()) + 1)
        for new in set(safe[~self._known[safe]].tolist()):
            self._known[new] = True
            text = self._loader.raw_token(new)
            self._matches[new] = new == self._id or (text is not None and self._is_in(text))
        matching: Array = self._matches[safe] & sound
        return matching if self._id is None else matching | (ids == self._id)

    def _grow(self, size: int) -> None:
        if size > len(self._known):
            more = np.zeros(max(size, 2 * len(self._known)) - len(self._known), np.bool_)
            self._known = np.concatenate([self._known, more])
            self._matches = np.concatenate([self._matches, more])

    def _is_in(self, text: str) -> bool:
        return self.text in (text.lower() if self._fold else text)


def _rows_of(pieces: Sequence[Piece]) -> Array:
    """Number of every step in some pieces."""
    return np.concatenate([np.arange(piece.row, piece.row + piece.chunk.num_rows) for piece in pieces])
