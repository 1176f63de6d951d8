"""What every screen of the viewer has: the prompt, counts, a word in the status row, the commands.

Knows no widget and no row: a screen says what it shows (`show_place`) and what an answer means
(`search_for`, `filter_by`, `go_to_number`).
"""

from __future__ import annotations

from pathlib import Path

from textual import events

from spectrace.analysis.where import NAMES
from spectrace.errors import SpectraceError
from spectrace.format.text import visible
from spectrace.tui.keys import key_name
from spectrace.tui.prompt import Prompt, completed_names
from spectrace.tui.screens.key_screen import KeyScreen

_MOST_DIGITS = 12


class AskingScreen(KeyScreen):
    """Takes texts and counts, and obeys commands."""

    def __init__(self) -> None:
        super().__init__()
        self.count = ""
        """Digits typed so far."""
        self.word = ""
        """What is to be said until the next key."""
        self.prompt: Prompt | None = None

    def show_place(self) -> None:
        """Shows what follows every key."""
        raise NotImplementedError

    def search_for(self, text: str) -> None:
        """Looks for a text."""
        raise NotImplementedError

    def filter_by(self, text: str) -> None:
        """Lists only what fits."""
        raise NotImplementedError

    def go_to_number(self, number: int) -> None:
        """Goes to a step."""
        raise NotImplementedError

    def go_to_request(self, name: str) -> None:
        """Goes to the first step of a request."""
        raise NotImplementedError

    def say(self, word: str) -> None:
        """Shows a word in the status row until the next key."""
        self.word = word
        self.show_place()

    def taken_count(self) -> int | None:
        """The count that was typed, which is used up by the key that asks."""
        count, self.count = self.count, ""
        return int(count) if count else None

    # --- prompt ---

    async def take_text(self, event: events.Key) -> bool:
        """Prompt and counts."""
        if self.prompt is not None:
            await self._type(self.prompt, event)
            return True
        if event.character is not None and event.character in "0123456789":
            self.count = (self.count + event.character)[:_MOST_DIGITS]
            self.word = ""
            self.show_place()
            return True
        if self.word:
            self.say("")
        return False

    async def _type(self, prompt: Prompt, event: events.Key) -> None:
        outcome = prompt.take(event.key, event.character)
        if outcome != "typing":
            self.prompt = None
        if outcome != "done":
            self.show_place()
        elif prompt.sign == "/":
            self.search_for(prompt.text)
        elif prompt.sign == "&":
            self.filter_by(prompt.text.strip())
        else:
            await self._obey(prompt.text.strip())

    async def _obey(self, command: str) -> None:
        digits = command.replace(",", "").replace("_", "")
        name, _, rest = command.partition(" ")
        key = next((key for key in self.viewer.keys if key.command and key.command == command), None)
        if digits.isdecimal():
            self.go_to_number(int(digits[:_MOST_DIGITS]))
        elif name == "req" and rest.strip():
            self.go_to_request(rest.strip())
        elif name == "diff" and rest.strip():
            self._compare_with(Path(rest.strip()).expanduser())
        elif command == "q":
            self.app.exit()
        elif key is not None:
            self.show_place()
            await self.run_key(key)
        elif command:
            shown = visible(command, limit=40)
            self.say(f"no such command: {shown}; a number goes to that step, ? lists the commands")
        else:
            self.show_place()

    def _compare_with(self, path: Path) -> None:
        try:
            self.viewer.loader.against_files([path])
        except (SpectraceError, OSError) as error:
            self.say(visible(str(error), limit=200))
        else:
            self.show_place()
            self.viewer.open_page("diff", is_new=True)

    def unknown_key(self, name: str) -> None:
        """Says that a key does nothing."""
        self.taken_count()
        self.say(f"{visible(key_name(name), limit=24)} does nothing here; ? lists the keys")

    def completions(self, sign: str, text: str) -> list[str]:
        """What Tab makes of a text."""
        if sign != ":":
            return completed_names(text, NAMES)
        names = sorted(key.command for key in self.viewer.keys if key.command)
        return [name for name in [*names, "req ", "diff "] if name.startswith(text) and name != text]

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text goes to the prompt and nowhere else."""
        event.stop()
        if self.prompt is not None:
            self.prompt.paste(event.text)
            self.show_place()

    def action_prompt(self, sign: str) -> None:
        """Opens the prompt."""
        self.taken_count()
        history = self.viewer.history.setdefault(sign, [])
        self.prompt = Prompt(sign, history, lambda text: self.completions(sign, text))
        self.show_place()

    # --- the program ---

    def action_page(self, name: str) -> None:
        """Another screen."""
        self.taken_count()
        self.viewer.open_page(name)

    def action_steps(self) -> None:
        """The list of steps."""
        self.taken_count()
        self.viewer.show_steps()

    def action_help(self) -> None:
        """Every key."""
        self.taken_count()
        self.viewer.open_help()

    def action_fields(self) -> None:
        """What an expression may name."""
        self.taken_count()
        self.viewer.open_fields()

    def action_palette(self) -> None:
        """Finds a command by its words."""
        self.taken_count()
        self.viewer.open_palette()

    def action_redraw(self) -> None:
        """Draws the screen again, after something else wrote over it."""
        self.viewer.redraw()

    def action_mouse(self) -> None:
        """Mouse on and off."""
        is_on = self.viewer.toggle_mouse()
        self.say("mouse on: the terminal's own selection needs Shift" if is_on else "mouse off")

    def action_suspend(self) -> None:
        """Back to the shell until fg."""
        self.app.action_suspend_process()

    async def action_quit(self) -> None:
        """Quits."""
        self.app.exit()
