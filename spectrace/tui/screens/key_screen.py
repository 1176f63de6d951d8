"""A screen that acts on each key before the next one is looked at.

Textual hands a key to a widget, then to its parents, then to the app, each with a queue of its own: keys
that arrive in one burst overtake what the first of them set in motion. Here the app hands every key to
the screen on top and waits until it has been acted on. What a key does stands in the registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import events
from textual.geometry import Size
from textual.screen import Screen

from spectrace.tui.keys import Key

if TYPE_CHECKING:
    from spectrace.tui.viewer import Viewer


class KeyScreen(Screen[None]):
    """Takes keys in the order in which they were typed, those before the first paint included."""

    AUTO_FOCUS = ""

    def __init__(self) -> None:
        super().__init__()
        self._early: list[events.Key] | None = []

    @property
    def viewer(self) -> Viewer:
        """The app."""
        return cast("Viewer", self.app)

    @property
    def has_widgets(self) -> bool:
        """Whether there is anything to draw on: not before Textual has composed it, nor on the way out."""
        return self.is_mounted and self.display

    def _screen_resized(self, size: Size) -> None:
        # A size that is stale posts another resize: two in the queue would chase each other for ever.
        super()._screen_resized(self.app.size)

    async def take_key(self, event: events.Key) -> None:
        """Acts on one key, at once or as soon as the screen has its size."""
        if self._early is not None:
            self._early.append(event)
        elif not await self.take_text(event):
            await self._act(event.key)

    async def take_text(self, event: events.Key) -> bool:
        """Takes a key as text, for a prompt or a count; False when it is a command."""
        return False

    async def start_taking_keys(self) -> None:
        """The screen has its size: acts on what was typed before."""
        while self._early:
            early = self._early.pop(0)
            if self.viewer.screen is not self:
                await self.viewer.hand_key(early)
            elif not await self.take_text(early):
                await self._act(early.key)
        self._early = None

    async def _act(self, name: str) -> None:
        key = self.viewer.by_key.get(name)
        if key is not None:
            await self.run_key(key)

    async def run_key(self, key: Key) -> None:
        """Does what a key of the registry says."""
        await self.app.run_action(key.action, default_namespace=self)
