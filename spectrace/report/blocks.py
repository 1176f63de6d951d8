"""The blocks a report is made of: sentences and tables as plain text, which the writers escape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first column is text, the others are numbers where they can be."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Bars:
    """Shares with their names: a plot that needs no library."""

    rows: Sequence[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class Code:
    """Lines as they are typed."""

    lines: Sequence[str]


Block = Text | Bullets | Table | Bars | Code


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands under it."""

    title: str
    blocks: Sequence[Block]
