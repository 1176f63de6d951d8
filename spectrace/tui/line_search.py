"""A text looked for in the lines of a page: lower case finds upper case too. Draws nothing, moves nothing."""

from __future__ import annotations

from collections.abc import Sequence

from spectrace.format.text import visible
from spectrace.tui.pages.page import PageLine
from spectrace.tui.spans import text_of


class LineSearch:
    """What was searched last, and where it is found."""

    def __init__(self) -> None:
        self.text = ""
        """"" = nothing is searched."""

    def matches(self, lines: Sequence[PageLine]) -> list[int]:
        """Indices of the lines that hold the text."""
        fold = self.text == self.text.lower()
        texts = (text_of(line.spans) for line in lines)
        return [i for i, text in enumerate(texts) if self.text in (text.lower() if fold else text)]

    def next_match(
        self, lines: Sequence[PageLine], here: int, direction: int, count: int
    ) -> tuple[int, bool] | None:
        """The line `count` matches ahead, and whether none lies ahead; None where no line matches."""
        found = self.matches(lines)
        if not found:
            return None
        ahead = [index for index in found if (index > here if direction > 0 else index < here)]
        ways = [*ahead, *found] if direction > 0 else [*reversed(ahead), *reversed(found)]
        return ways[(count - 1) % len(ways)], not ahead

    def words(self, lines: Sequence[PageLine], here: int, room: int) -> str:
        """What the status row says, with at most `room` characters of what was typed."""
        if not self.text:
            return ""
        found = self.matches(lines)
        place = sum(index <= here for index in found)
        return f"/{visible(self.text, limit=room)}: {f'{place} of {len(found)}' if found else 'no match'}"
