"""Numbers that fit into cells of a fixed width; what is missing is a dash."""

from __future__ import annotations


def cell_number(value: float | None, digits: int = 3) -> str:
    """A number in seven cells, NaN and infinite values as words."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.1e}"


def cell_rank(words: str) -> str:
    """A rank in five cells."""
    return words if len(words) <= 5 else "1e5+"
