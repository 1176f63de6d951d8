"""Columns of steps with what must not leave the machine taken out. Works on whole frames, decodes no step.

`redaction.py` says which column is treated how; what cannot be told from columns alone (which rows belong
to a prompt) is found out here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from spectrace.format.columns import Array, Column, Columns
from spectrace.format.projections import NUM_PROJECTIONS
from spectrace.report.allowed import STEP_WORDS
from spectrace.report.redaction import BY_PATH, is_as_it_was
from spectrace.report.reduction import OTHER

_MILLISECOND = 1_000_000
_IDS = ("proposal_ids", "emitted_ids")


class ColumnRedactor:
    """Takes out of columns what is not to leave the machine.

    Args:
        include: options given: ``text``, ``paths``.
    """

    def __init__(self, include: frozenset[str]) -> None:
        self._include = include
        self.removed: dict[str, int] = {}
        """Column -> values dropped or changed."""
        seed = int.from_bytes(os.urandom(32), "little")
        noise = np.random.default_rng(seed).standard_normal((NUM_PROJECTIONS, NUM_PROJECTIONS))
        # Angles and lengths stay under a rotation; nobody can make the fingerprint of a text and look for it.
        self._rotation, _ = np.linalg.qr(noise)

    def redacted(self, columns: Columns, num_rows: int) -> Columns:
        """What is left of the columns of some rows; `request` is left to the caller."""
        is_nameless = _is_nameless(columns, num_rows)
        left: Columns = {}
        for path, column in columns.items():
            found = self._reduced(path, column, is_nameless)
            if found is not None:
                left[path] = found
            if found is not column:
                self.removed[path] = self.removed.get(path, 0) + len(column.values)
        return left

    def _reduced(self, path: str, column: Column, is_nameless: Array | None) -> Column | None:
        if path == "request" or is_as_it_was(path, self._include):
            return column
        rule = BY_PATH.get(path)
        if rule is None or rule.action == "dropped":
            return None
        if path in _IDS:
            return _hollow(column)
        if path in STEP_WORDS:
            return _known_words(column, STEP_WORDS)
        if path == "started_ns":
            return replace(column, values=column.values.astype(np.int64) // _MILLISECOND * _MILLISECOND)
        if path == "taps.rms" and is_nameless is not None:
            return _with_holes(column, is_nameless)
        if path == "taps.projections" and is_nameless is not None:
            return self._turned(column, is_nameless)
        return None

    def _turned(self, column: Column, is_nameless: Array) -> Column | None:
        """Fingerprints under the secret rotation; those that would name a token are dropped."""
        sizes = column.lengths[1]
        if column.known is not None or len(sizes) != len(is_nameless):
            return None
        keep = (sizes == NUM_PROJECTIONS) & is_nameless
        rows = column.values[np.repeat(keep, sizes)].astype(np.float64).reshape(-1, NUM_PROJECTIONS)
        with np.errstate(all="ignore"):
            turned = (rows @ self._rotation).astype(np.float32).reshape(-1)
        lengths = (column.lengths[0], np.where(keep, NUM_PROJECTIONS, 0))
        return replace(column, values=turned, lengths=lengths)


def _hollow(column: Column) -> Column:
    """The same lists, of elements that nobody knows."""
    slots = int(column.lengths[-1].sum())
    return replace(column, values=np.zeros(0, np.uint8), known=np.zeros(slots, bool))


def _known_words(column: Column, known: Mapping[str, frozenset[str]]) -> Column:
    """Text with every word that is on no list as *other*; words that no value uses are gone."""
    allowed = known[column.leaf.path]
    if allowed.issuperset(column.words):
        return column
    shown = [word if word in allowed else OTHER for word in column.words]
    words = sorted({shown[code] for code in np.unique(column.values).tolist()})
    codes = np.array([words.index(word) if word in words else 0 for word in shown] or [0], np.int64)
    values = codes[column.values.astype(np.int64)] if column.values.size else np.zeros(0, np.int64)
    return replace(column, values=values, words=tuple(words))


def _with_holes(column: Column, keep: Array) -> Column | None:
    """A column of one value per tap with the others unknown."""
    known = np.ones(len(keep), bool) if column.known is None else column.known
    if len(known) != len(keep):
        return None
    return replace(column, values=column.values[keep[known]], known=known & keep)


def _is_nameless(columns: Columns, num_rows: int) -> Array | None:
    """[taps] the state hangs on a text that the trace does not hold, so that it names no token by itself.

    A row of the prompt does: whoever has the model tries every token in turn, from the first on. So does a
    row of boundary 0, the embedding of one token. Both go.
    """
    boundary = columns.get("taps.boundary")
    counts = next((c for path, c in columns.items() if path.startswith("taps.")), None)
    if counts is None or boundary is None:
        return None
    in_prompt = ~_has_proposal(columns, num_rows) | _is_first(columns, num_rows)
    owners = np.arange(num_rows) if counts.present is None else np.flatnonzero(counts.present)
    rows = np.repeat(owners, counts.lengths[0])
    known = np.ones(len(rows), bool) if boundary.known is None else boundary.known.copy()
    if len(known) != len(rows):
        return None
    known[known] = boundary.values > 0
    nameless: Array = known & ~in_prompt[rows]
    return nameless


def _has_proposal(columns: Columns, num_rows: int) -> Array:
    column = columns.get("proposal_ids")
    if column is None or column.present is not None:
        return np.zeros(num_rows, bool)
    has: Array = column.lengths[0] > 0
    return has


def _is_first(columns: Columns, num_rows: int) -> Array:
    column = columns.get("step")
    if column is None or column.present is not None:
        return np.ones(num_rows, bool)
    first: Array = column.values == 0
    return first
