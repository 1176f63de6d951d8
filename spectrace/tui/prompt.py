"""The one-line prompt for `/` and `:`: a state of the screen, not a widget that has to be focused.

Keys reach the screen in the order in which they were typed, so text that arrives in one burst (SSH, a
fast typist) never overtakes the prompt. No Textual here.
"""

from __future__ import annotations

from typing import Literal

from rich.cells import cell_len

LONGEST = 400
"""Characters a prompt takes."""


class Prompt:
    """Text being typed.

    Args:
        sign: `/` or `:`.
        history: what was typed before, oldest first.
    """

    def __init__(self, sign: str, history: list[str]) -> None:
        self.sign = sign
        self.text = ""
        self._history = history
        self._back = 0

    def take(self, key: str, character: str | None) -> Literal["typing", "done", "left"]:
        """Takes one key.

        Returns:
            done: the text is complete; left: the prompt was given up.
        """
        # Enter typed before the terminal was ours arrives as a line feed.
        if key in ("enter", "ctrl+j"):
            if self.text and (not self._history or self._history[-1] != self.text):
                self._history.append(self.text)
            return "done"
        if key in ("escape", "ctrl+c") or (key == "backspace" and not self.text):
            return "left"
        if key == "backspace":
            self.text = self.text[:-1]
        elif key == "ctrl+u":
            self.text = ""
        elif key == "ctrl+w":
            self.text = self.text.rstrip().rpartition(" ")[0]
        elif key in ("up", "down"):
            self._recall(1 if key == "up" else -1)
        elif character is not None and character.isprintable():
            self.paste(character)
        return "typing"

    def paste(self, text: str) -> None:
        """Takes text as it is, its first line only."""
        line = text.splitlines()[0] if text else ""
        self.text = (self.text + "".join(c for c in line if c.isprintable()))[:LONGEST]

    def shown(self, width: int) -> str:
        """Sign and text, their end when they are too long."""
        shown = self.sign + self.text
        while cell_len(shown) > max(width, 1):
            shown = shown[1:]
        return shown

    def _recall(self, back: int) -> None:
        self._back = min(max(self._back + back, 0), len(self._history))
        self.text = self._history[-self._back] if self._back else ""
