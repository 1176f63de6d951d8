"""Where the reader has been: marks by letter, and the way back through the jumps. Rows only."""

from __future__ import annotations

_MOST_JUMPS = 100


class Places:
    """Marks and jumps of one trace."""

    def __init__(self) -> None:
        self.marks: dict[str, int] = {}
        self.last = 0
        """Where the last jump began."""
        self._jumps: list[int] = []

    def jump(self, start: int) -> None:
        """A jump begins here."""
        self.last = start
        if self._jumps[-1:] != [start]:
            self._jumps = [*self._jumps[-_MOST_JUMPS + 1 :], start]

    def back(self, row: int) -> int | None:
        """Where the newest jump began that did not begin here; None before the first."""
        while self._jumps:
            start = self._jumps.pop()
            if start != row:
                return start
        return None
