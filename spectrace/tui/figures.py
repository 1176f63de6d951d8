"""Numbers as the screens write them; what is missing is a dash."""

from __future__ import annotations


def ratio(value: float | None, digits: int = 2) -> str:
    """A number with a fixed number of decimals.

    >>> ratio(4.0526), ratio(None)
    ('4.05', '-')
    """
    return "-" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A share as per cent.

    >>> percent(0.125)
    '12.5 %'
    """
    return "-" if value is None else f"{100 * value:.1f} %"


def number_of(count: int | None, thing: str) -> str:
    """A count with its noun; nothing where it is unknown.

    >>> number_of(1, "step"), number_of(2000, "step")
    ('1 step', '2,000 steps')
    """
    if count is None:
        return ""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def number(value: float | None, digits: int = 3) -> str:
    """A number in seven cells, NaN and infinite values as words."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.1e}"


def whole(value: int | None) -> str:
    """A whole number in five cells."""
    if value is None:
        return "-"
    return str(value) if value < 10**5 else "1e5+"
