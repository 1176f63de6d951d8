"""The steps of one frame, decoded field by field when asked for."""

from __future__ import annotations

from typing import Any, Protocol

from spectrace.format.assembly import assemble
from spectrace.format.columns import Column, Columns
from spectrace.format.fields import FIELD_BY_NAME, LEAF_BY_NUMBER
from spectrace.format.frames import BadBody, Frame
from spectrace.format.records import Step
from spectrace.format.wire import StepBody


class Owner(Protocol):
    """The file a chunk lies in."""

    def complain(self, sentence: str) -> None:
        """Notes damage."""

    def request_name(self, number: int | None) -> str:
        """Name of a request."""


class Chunk:
    """The steps of one STEP frame; where a `Step` finds its values.

    Args:
        part: the file, for request names and complaints.
        frame: the frame.
        base: number of the part's first step within the trace.
    """

    __slots__ = ("_fields", "_part", "body", "first_row", "num_rows", "offset")

    def __init__(self, part: Owner, frame: Frame) -> None:
        self.body = StepBody(frame.body)
        self.num_rows = self.body.num_rows
        self.first_row = frame.first_row
        self.offset = frame.offset
        self._part = part
        self._fields: dict[str, list[Any] | None] = {}

    def field(self, name: str) -> list[Any] | None:
        """Values of one field, one per row; None when no row has it or it is damaged."""
        try:
            return self._fields[name]
        except KeyError:
            found = self._fields[name] = self._assembled(name)
            return found

    def _assembled(self, name: str) -> list[Any] | None:
        field = FIELD_BY_NAME[name]
        columns: Columns = {}
        try:
            for leaf in field.leaves:
                column = self.body.column(leaf.number)
                if column is not None:
                    columns[leaf.path] = column
            values = assemble(columns, self.num_rows, field)
            if field.required and not _is_whole(columns.get(name)):
                raise BadBody(f"field {name} must be given for every step")
        except (BadBody, ValueError, RecursionError) as error:
            self._part.complain(f"STEP frame at byte {self.offset:,}: {error}; that field is not shown")
            values = None
        if name == "request" and values is not None:
            return [self._part.request_name(number) for number in values]
        if values is None and field.required:
            return _MISSING[name] * self.num_rows
        return values

    def columns(self, *numbers: int) -> Columns:
        """The columns that are there and sound."""
        found: Columns = {}
        for number in numbers:
            if number not in self.body.numbers:
                continue
            try:
                column = self.body.column(number)
            except BadBody as error:
                self._part.complain(f"STEP frame at byte {self.offset:,}: {error}")
                continue
            if column is not None:
                found[LEAF_BY_NUMBER[number].path] = column
        return found

    def step(self, row: int) -> Step:
        """One step."""
        return Step(self, row)


def _is_whole(column: Column | None) -> bool:
    return column is not None and column.present is None and (column.leaf.depth > 0 or column.known is None)


_MISSING: dict[str, list[Any]] = {
    "request": ["?"],
    "step": [-1],
    "position": [-1],
    "proposal_ids": [()],
    "num_accepted": [0],
    "emitted_ids": [()],
}
"""What a damaged required field reads as."""
