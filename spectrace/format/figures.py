"""Numbers as people read and type them: with thousands separated, counts with their noun, shares, sizes.

What is missing is a dash. Every command, screen and report writes its numbers with these, and its lists and
mappings of numbers; knows no unit of any field, and escapes nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d{1,3})?)\s*([A-Za-z]*)\s*", re.ASCII)
_UNITS: dict[str, int] = {
    "": 1,
    **{unit: 1024**power for power, unit in enumerate("kmg", 1)},
    **{f"{unit}ib": 1024**power for power, unit in enumerate("kmg", 1)},
    **{f"{unit}b": 1000**power for power, unit in enumerate("kmg", 1)},
}

_MAX_ITEMS, _MAX_DEPTH, _MAX_TEXT = 16, 3, 200
"""Most items, most levels and most characters that are written of a value."""


def number(value: float | int | None, digits: int = 3) -> str:
    """A number; a dash when there is none.

    Args:
        value: a whole number is written whole, another one with its decimals.
        digits: how many decimals.

    >>> number(1234567), number(0.5), number(4.0526, 2), number(None)
    ('1,234,567', '0.500', '4.05', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.{digits}f}" if abs(value) < 1e12 else f"{value:.6g}"


def percent(share: float | None) -> str:
    """A share in 0..1 as per cent.

    >>> percent(0.125)
    '12.5 %'
    """
    return "-" if share is None else f"{100 * share:.1f} %"


def noun(count: int, one: str, many: str | None = None) -> str:
    """The noun, or the verb, that belongs to a count.

    >>> noun(1, "entry", "entries"), noun(0, "step")
    ('entry', 'steps')
    """
    return one if count == 1 else many or f"{one}s"


def count_of(count: int | None, one: str, many: str | None = None) -> str:
    """A count with its noun; nothing where it is unknown.

    >>> count_of(1, "step"), count_of(2000, "step"), count_of(None, "step")
    ('1 step', '2,000 steps', '')
    """
    return "" if count is None else f"{count:,} {noun(count, one, many)}"


def words(name: str) -> str:
    """A field's name in words."""
    return name.replace("_", " ")


def value_text(value: Any, depth: int = 0) -> str:
    """A piece of evidence or a setting as people read it; empty when it says nothing.

    Args:
        value: a number, a text (which may be a trace's), or a list or a mapping of such values.
        depth: how many levels it lies deep.

    >>> value_text({"distinct_ids": 20954, "equals_mask": False}), value_text([0.5, None])
    ('distinct ids 20,954, equals mask no', '0.500, ')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number(value)
    if depth == _MAX_DEPTH or not isinstance(value, (Mapping, list, tuple)):
        return "" if value is None else str(value)[:_MAX_TEXT]
    if isinstance(value, Mapping):
        first = islice(value.items(), _MAX_ITEMS)
        texts = [f"{words(str(key)[:_MAX_TEXT])} {value_text(item, depth + 1)}" for key, item in first]
    else:
        texts = [value_text(item, depth + 1) for item in value[:_MAX_ITEMS]]
    more = len(value) - len(texts)
    return ", ".join([*texts, f"and {more:,} more"] if more else texts)


def size_of(text: str) -> int | None:
    """Bytes, as people type them: ``24MB`` and ``0.5 GB`` in thousands, ``24M`` and ``24MiB`` in 1024s.

    Returns:
        The size; None of what is none.

    >>> size_of("900kB"), size_of("1.5M"), size_of("2 GiB"), size_of("500"), size_of("1TB")
    (900000, 1572864, 2147483648, 500, None)
    """
    found = _SIZE.fullmatch(text)
    unit = None if found is None else _UNITS.get(found[2].lower())
    if found is None or unit is None:
        return None
    whole, _, part = found[1].partition(".")
    size: int = int(whole) * unit + int(part or 0) * unit // 10 ** len(part)
    return size
