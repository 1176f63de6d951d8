"""Shows what is about to be copied; Enter hands it to the terminal's clipboard by OSC 52."""

from __future__ import annotations

from spectrace.tui.pages.own import copy_page
from spectrace.tui.screens.page import PageScreen

MOST_BYTES = 56_000
"""A terminal drops a sequence that is longer; with base64, xterm's and tmux's limits are about 75,000."""


class CopyScreen(PageScreen):
    """A text and the question whether to copy it.

    Args:
        text: what is copied.
        what: what it is, in words.
    """

    def __init__(self, text: str, what: str, *, scrolls_by_line: bool) -> None:
        super().__init__(copy_page(text, what), 0, scrolls_by_line=scrolls_by_line)
        self._text = text

    def action_open(self) -> None:
        """Copies, and goes back."""
        self.taken_count()
        size = len(self._text.encode())
        if size > MOST_BYTES:
            self.say(f"{size:,} bytes are more than terminals take; spectrace export prints every step")
            return
        self.app.copy_to_clipboard(self._text)
        self.viewer.close_screen().say("sent to the terminal; one that refuses OSC 52 copies nothing")

    def action_copy(self) -> None:
        """As Enter."""
        self.action_open()
