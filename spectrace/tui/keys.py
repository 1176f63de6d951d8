"""Everything the viewer can do, once: bindings, help, hints, palette and `:` commands are made from this.

A key has an id (for a reader's own key map), words for the help and an action. No Textual here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Group = Literal["move", "hunt", "search", "marks", "screens", "view", "system"]
GROUP_TITLES: dict[Group, str] = {
    "move": "Move",
    "hunt": "Hunt",
    "screens": "Screens",
    "search": "Search and filter",
    "marks": "Marks",
    "view": "View",
    "system": "Program",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One thing the viewer can do."""

    id: str
    keys: str
    """Textual's names, separated by commas; "" = by command only."""
    action: str
    description: str
    group: Group
    command: str = ""
    """What `:` calls it, "" = not there."""
    hint: str = ""
    """Short words for the hint row, "" = not there."""
    also: str = ""
    """Other words by which the palette finds it."""

    @property
    def shown(self) -> str:
        """The first two keys as they are printed on a keyboard."""
        # Enter that was typed before the terminal was ours arrives as Ctrl-J.
        names = [name for name in self.keys.split(",") if name not in ("", "ctrl+j")]
        return " ".join(map(key_name, names[:2]))


def _keys(group: Group, *rows: Sequence[str]) -> list[Key]:
    """Rows of id, keys, action, description, then command, hint and other words where there are any."""
    return [
        Key(group=group, id=r[0], keys=r[1], action=r[2], description=r[3], command=c, hint=h, also=a)
        for r in rows
        for c, h, a in [(*r[4:], "", "", "")[:3]]
    ]


KEYS: tuple[Key, ...] = (
    *_keys(
        "move",
        ("move.down", "j,down", "move(1)", "next step (5j: five)", "", "move"),
        ("move.up", "k,up", "move(-1)", "previous step"),
        ("move.half_down", "ctrl+d", "page_move(0.5)", "half a page down"),
        ("move.half_up", "ctrl+u", "page_move(-0.5)", "half a page up"),
        ("move.page_down", "space,pagedown", "page_move(1)", "page down"),
        ("move.page_up", "b,pageup", "page_move(-1)", "page up"),
        ("move.first", "g,home", "go(0)", "first step (123g: step 123)", "top"),
        ("move.last", "G,end", "go(-1)", "last step (123G or :123: step 123)", "end"),
        ("move.left", "h,left", "position(-1)", "previous token of the step"),
        ("move.right", "l,right", "position(1)", "next token of the step", "", "token"),
        ("move.same_request_back", "comma", "same_request(-1)", "previous step of the same request"),
        ("move.same_request", "full_stop", "same_request(1)", "next step of the same request"),
        ("move.request_back", "left_curly_bracket", "request(-1)", "previous request"),
        ("move.request", "right_curly_bracket", "request(1)", "next request (:req NAME: that one)"),
    ),
    *_keys(
        "hunt",
        ("hunt.first", "f", "first_rejection", "first rejection among the steps that are listed", "first",
         "first rejection", "divergence mismatch refused"),
        ("hunt.next", "e,right_square_bracket", "rejection(1)", "next rejection", "next", "next",
         "divergence mismatch refused"),
        ("hunt.previous", "E,left_square_bracket", "rejection(-1)", "previous rejection", "previous", "",
         "divergence mismatch refused"),
        ("hunt.finding", "right_parenthesis", "finding(1)", "next step that a finding of the diagnosis names",
         "finding", "finding", "why diagnose cause"),
        ("hunt.finding_back", "left_parenthesis", "finding(-1)", "previous step that a finding names", "", "",
         "why diagnose cause"),
        ("hunt.cliff", "c", "cliff", "where acceptance falls with the length of the context", "cliff"),
    ),
    *_keys(
        "search",
        ("search.start", "slash", "prompt('/')",
         "search a token text, a token id, a request, or an expression such as "
         "accepted < 2 and position > 2048; in quotes it is a text; :fields lists the names", "", "search"),
        ("search.next", "n", "match(1)", "next match"),
        ("search.previous", "N", "match(-1)", "previous match"),
        ("search.token", "asterisk", "search_token", "search the token under the cursor"),
        ("search.filter", "ampersand", "prompt('&')",
         "list only what fits, as / takes it; ! before it inverts, nothing lists all", "", "filter",
         "where only hide"),
        ("search.undo", "u", "undo", "the filter before this one", "undo"),
        ("search.fields", "", "fields", "the names that an expression may use, and its grammar", "fields", "",
         "columns names expression"),
        ("search.line", "colon", "prompt(':')", "a step's number or a command; Tab completes"),
    ),
    *_keys(
        "marks",
        ("marks.set", "m", "mark('set')", "m a: mark this step as a"),
        ("marks.go", "apostrophe", "mark('go')", "' a: go to mark a; '': where the last jump began"),
        ("marks.back", "ctrl+o", "jump_back", "back through the jumps"),
    ),
    *_keys(
        "view",
        ("view.open", "enter,ctrl+j", "open", "open the step; elsewhere: the step of this line", "", "open"),
        ("view.zoom", "z", "zoom", "the step's pane on the whole screen, and back", "zoom"),
        ("view.back", "escape", "back", "one level back; stop what runs", "", "back"),
        ("view.tokens", "t", "toggle_tokens", "tokens as text, ids or both", "tokens", "text/ids"),
        ("view.follow", "F", "follow", "follow a trace that is being recorded, and stop", "follow", "",
         "live tail watch"),
        ("view.copy", "y", "copy", "copy: the step as JSON, in a screen the line", "copy", "copy"),
        ("view.copy_all", "Y", "copy_all", "copy everything that the screen says"),
    ),
    *_keys(
        "system",
        ("system.help", "question_mark,f1", "help", "this help; / searches it", "help", "help"),
        ("system.palette", "ctrl+p", "palette", "find a command by its words", "commands"),
        ("system.redraw", "ctrl+l", "redraw", "draw the screen again", "redraw"),
        ("system.mouse", "f2", "mouse", "mouse on and off", "mouse"),
        ("system.suspend", "ctrl+z", "suspend", "back to the shell; fg returns"),
        ("system.leave", "q", "leave", "leave the screen; in Steps, quit", "", "quit"),
        ("system.quit", "Q,ctrl+q", "quit", "quit", "quit"),
        ("system.interrupt", "ctrl+c", "interrupt", "stop what runs, else quit"),
    ),
)  # fmt: skip

_NAMES = {
    "ampersand": "&",
    "apostrophe": "'",
    "asterisk": "*",
    "circumflex_accent": "^",
    "colon": ":",
    "comma": ",",
    "dollar_sign": "$",
    "down": "↓",
    "end": "End",
    "enter": "Enter",
    "equals_sign": "=",
    "escape": "Esc",
    "exclamation_mark": "!",
    "full_stop": ".",
    "greater_than_sign": ">",
    "home": "Home",
    "left": "←",
    "left_curly_bracket": "{",
    "left_parenthesis": "(",
    "left_square_bracket": "[",
    "less_than_sign": "<",
    "minus": "-",
    "number_sign": "#",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "percent_sign": "%",
    "plus": "+",
    "question_mark": "?",
    "right": "→",
    "right_curly_bracket": "}",
    "right_parenthesis": ")",
    "right_square_bracket": "]",
    "semicolon": ";",
    "slash": "/",
    "space": "Space",
    "tab": "Tab",
    "tilde": "~",
    "underscore": "_",
    "up": "↑",
    "vertical_line": "|",
    "backslash": "\\",
    "at": "@",
}
"""Textual's name of a key -> what stands on it."""
_BY_SIGN = {sign: name for name, sign in _NAMES.items()}
_WORD = re.compile(r"(ctrl\+|shift\+)*([a-z_]+|f[0-9]{1,2}|[A-Za-z])")


def key_name(name: str) -> str:
    """How a key is printed.

    >>> key_name("ctrl+d"), key_name("full_stop"), key_name("G")
    ('Ctrl-D', '.', 'G')
    """
    *held, last = name.split("+")
    shown = _NAMES.get(last, last.upper() if held or re.fullmatch(r"f\d+", last) else last)
    return "-".join([*(word.capitalize() for word in held), shown])


def key_id(text: str) -> str | None:
    """Textual's name of a key that a reader wrote, None when there is no such key.

    >>> key_id("&"), key_id("ctrl+r"), key_id("wrong key")
    ('ampersand', 'ctrl+r', None)
    """
    if text in _BY_SIGN:
        return _BY_SIGN[text]
    return text if _WORD.fullmatch(text) else None


def every_key() -> tuple[Key, ...]:
    """The keys above and those that open a screen; loads the screens."""
    from spectrace.tui.pages import PAGES

    steps = Key(
        id="screen.steps",
        keys="S",
        action="steps",
        description="the list of steps",
        group="screens",
        command="steps",
    )
    pages = (
        Key(
            id=f"screen.{page.id}",
            keys=page.key,
            action=f"page('{page.id}')",
            description=page.description,
            group="screens",
            command=page.id,
            hint=page.hint,
            also=page.also,
        )
        for page in PAGES
    )
    return (*KEYS, steps, *pages)


def by_key(keys: Iterable[Key]) -> dict[str, Key]:
    """Textual's name of a key -> what it does; of two claims the first counts."""
    found: dict[str, Key] = {}
    for key in keys:
        for name in key.keys.split(","):
            if name:
                found.setdefault(name, key)
    return found


def keys_text(keys: Iterable[Key]) -> str:
    """The whole registry as text: id, keys, command, what it does."""
    return "".join(
        f"{key.id:<24}{key.shown:<12}{':' + key.command if key.command else '':<14}{key.description}\n"
        for key in keys
    )
