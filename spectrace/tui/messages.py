"""What workers and widgets tell the screen, in the past tense."""

from __future__ import annotations

from textual.message import Message

from spectrace.tui.search import Search, StepWalk


class SearchAdvanced(Message):
    """A search in the background found something, came further or ended."""

    def __init__(self, task: Search | StepWalk) -> None:
        super().__init__()
        self.task = task

    def can_replace(self, message: Message) -> bool:
        """The newest says everything."""
        return isinstance(message, SearchAdvanced) and message.task is self.task


class TraceGrew(Message):
    """A followed trace has more steps, or another state."""

    def can_replace(self, message: Message) -> bool:
        """The newest says everything."""
        return isinstance(message, TraceGrew)


class RequestsCounted(Message):
    """The number of requests is known."""


class StepClicked(Message):
    """A step was pointed at."""

    def __init__(self, row: int) -> None:
        super().__init__()
        self.row = row
