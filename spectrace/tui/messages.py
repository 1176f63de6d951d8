"""What workers and widgets tell the screen, in the past tense."""

from __future__ import annotations

from textual.message import Message

from spectrace.tui.background import Outcome
from spectrace.tui.findings import Findings
from spectrace.tui.search import Task


class TaskAdvanced(Message):
    """A search or a filter in the background found something, came further or ended."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def can_replace(self, message: Message) -> bool:
        """The newest says everything."""
        return isinstance(message, TaskAdvanced) and message.task is self.task


class DiagnosisMade(Message):
    """The rules have answered, or could not."""

    def __init__(self, findings: Findings | None, error: str) -> None:
        super().__init__()
        self.findings = findings
        self.error = error


class PageGathered(Message):
    """What a screen shows is known, or why it is not."""

    def __init__(self, row: int, outcome: Outcome) -> None:
        super().__init__()
        self.row = row
        self.outcome = outcome


class TraceGrew(Message):
    """A followed trace has more steps, or another state."""

    def can_replace(self, message: Message) -> bool:
        """The newest says everything."""
        return isinstance(message, TraceGrew)


class RequestsCounted(Message):
    """The number of requests is known."""


class LineClicked(Message):
    """A line of a list was pointed at."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
