"""Numbers that fit into cells of a fixed width; what is missing is a dash."""

from __future__ import annotations


def cell_number(value: float | None, digits: int = 3) -> str:
    """A number in seven cells, NaN and infinite values as words."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.1e}"


def cell_whole(value: int | None) -> str:
    """A whole number in five cells."""
    if value is None:
        return "-"
    return str(value) if value < 10**5 else "1e5+"
