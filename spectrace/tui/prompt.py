"""The one-line prompt for `/`, `&` and `:`: a state of the screen, not a widget that has to be focused.

Keys reach the screen in the order in which they were typed, so text that arrives in one burst (SSH, a
fast typist) never overtakes the prompt. No Textual here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

from rich.cells import cell_len

LONGEST = 400
"""Characters a prompt takes."""


class Prompt:
    """Text being typed.

    Args:
        sign: `/`, `&` or `:`.
        history: what was typed before, oldest first.
        complete: the whole texts that a text may become.
    """

    def __init__(
        self, sign: str, history: list[str], complete: Callable[[str], list[str]] = lambda text: []
    ) -> None:
        self.sign = sign
        self.text = ""
        self._history = history
        self._back = 0
        self._complete = complete
        self._offered: list[str] = []
        """Completions that Tab goes through."""

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
        if key in ("tab", "shift+tab"):
            self._offer(1 if key == "tab" else -1)
            return "typing"
        self._offered = []
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

    @property
    def offers(self) -> list[str]:
        """What Tab goes through."""
        return self._offered or self._complete(self.text)

    def _offer(self, step: int) -> None:
        if self._offered:
            at = self._offered.index(self.text) + step if self.text in self._offered else 0
            self.text = self._offered[at % len(self._offered)]
        elif offered := self._complete(self.text):
            self.text = offered[0 if step > 0 else -1]
            self._offered = offered

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


def completed_names(text: str, names: Iterable[str]) -> list[str]:
    """The text with its last word made one of the names that begin with it.

    >>> completed_names("accepted < 2 and pos", ["position", "parents"])
    ['accepted < 2 and position']
    """
    word = re.search(r"[a-z_]+$", text)
    if word is None:
        return []
    before, begun = text[: word.start()], word[0]
    return [before + name for name in names if name.startswith(begun) and name != begun]
