"""Every key of the viewer, once: the bindings, the help screen and the hint row are made from this.

A key has an id (for a user's own key map), words for the help and an action. No Textual here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["move", "hunt", "search", "view", "system"]
GROUP_TITLES: dict[Group, str] = {
    "move": "Move",
    "hunt": "Hunt",
    "search": "Search",
    "view": "View",
    "system": "Program",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One thing the viewer can do."""

    id: str
    keys: str
    """Textual's names, separated by commas."""
    shown: str
    """How the help names them."""
    action: str
    description: str
    group: Group
    hint: str = ""
    """Short words for the hint row, "" = not there."""


KEYS: tuple[Key, ...] = (
    Key(
        id="move.down",
        keys="j,down",
        shown="j ↓",
        action="move(1)",
        description="next step (5j: five)",
        group="move",
        hint="j/k move",
    ),
    Key(
        id="move.up",
        keys="k,up",
        shown="k ↑",
        action="move(-1)",
        description="previous step",
        group="move",
    ),
    Key(
        id="move.half_down",
        keys="ctrl+d",
        shown="Ctrl-D",
        action="page(0.5)",
        description="half a page down",
        group="move",
    ),
    Key(
        id="move.half_up",
        keys="ctrl+u",
        shown="Ctrl-U",
        action="page(-0.5)",
        description="half a page up",
        group="move",
    ),
    Key(
        id="move.page_down",
        keys="space,pagedown",
        shown="Space PgDn",
        action="page(1)",
        description="page down",
        group="move",
    ),
    Key(
        id="move.page_up",
        keys="b,pageup",
        shown="b PgUp",
        action="page(-1)",
        description="page up",
        group="move",
    ),
    Key(
        id="move.first",
        keys="g,home",
        shown="g Home",
        action="go(0)",
        description="first step (123g: step 123)",
        group="move",
    ),
    Key(
        id="move.last",
        keys="G,end",
        shown="G End",
        action="go(-1)",
        description="last step (123G or :123: step 123)",
        group="move",
    ),
    Key(
        id="move.left",
        keys="h,left",
        shown="h ←",
        action="position(-1)",
        description="previous token of the step",
        group="move",
    ),
    Key(
        id="move.right",
        keys="l,right",
        shown="l →",
        action="position(1)",
        description="next token of the step",
        group="move",
        hint="h/l token",
    ),
    Key(
        id="move.same_request_back",
        keys="comma",
        shown=",",
        action="same_request(-1)",
        description="previous step of the same request",
        group="move",
    ),
    Key(
        id="move.same_request",
        keys="full_stop",
        shown=".",
        action="same_request(1)",
        description="next step of the same request",
        group="move",
    ),
    Key(
        id="move.request_back",
        keys="left_curly_bracket",
        shown="{",
        action="request(-1)",
        description="previous request",
        group="move",
    ),
    Key(
        id="move.request",
        keys="right_curly_bracket",
        shown="}",
        action="request(1)",
        description="next request",
        group="move",
    ),
    Key(
        id="hunt.first",
        keys="f",
        shown="f",
        action="first_rejection",
        description="first rejection: the first step in which a token was refused",
        group="hunt",
        hint="f first rejection",
    ),
    Key(
        id="hunt.next",
        keys="e,right_square_bracket",
        shown="e ]",
        action="rejection(1)",
        description="next rejection",
        group="hunt",
        hint="e/E next, previous",
    ),
    Key(
        id="hunt.previous",
        keys="E,left_square_bracket",
        shown="E [",
        action="rejection(-1)",
        description="previous rejection",
        group="hunt",
    ),
    Key(
        id="search.start",
        keys="slash",
        shown="/",
        action="prompt('/')",
        description="search a token text, a token id or a request",
        group="search",
        hint="/ search",
    ),
    Key(
        id="search.next",
        keys="n",
        shown="n",
        action="match(1)",
        description="next match",
        group="search",
    ),
    Key(
        id="search.previous",
        keys="N",
        shown="N",
        action="match(-1)",
        description="previous match",
        group="search",
    ),
    Key(
        id="search.line",
        keys="colon",
        shown=":",
        action="prompt(':')",
        description="go to a step by its number; :q quits",
        group="search",
    ),
    Key(
        id="view.open",
        keys="enter,ctrl+j",
        shown="Enter",
        action="zoom",
        description="the step on the whole screen",
        group="view",
    ),
    Key(
        id="view.back",
        keys="escape",
        shown="Esc",
        action="back",
        description="back to the list; stop a search",
        group="view",
    ),
    Key(
        id="view.tokens",
        keys="t",
        shown="t",
        action="toggle_tokens",
        description="tokens as text, ids or both",
        group="view",
        hint="t text/ids",
    ),
    Key(
        id="view.follow",
        keys="F",
        shown="F",
        action="follow",
        description="follow a trace that is being recorded, and stop",
        group="view",
    ),
    Key(
        id="system.help",
        keys="question_mark,f1",
        shown="? F1",
        action="help",
        description="this help",
        group="system",
        hint="? help",
    ),
    Key(
        id="system.redraw",
        keys="ctrl+l",
        shown="Ctrl-L",
        action="redraw",
        description="draw the screen again",
        group="system",
    ),
    Key(
        id="system.suspend",
        keys="ctrl+z",
        shown="Ctrl-Z",
        action="suspend",
        description="back to the shell; fg returns",
        group="system",
    ),
    Key(
        id="system.quit",
        keys="q,Q,ctrl+q",
        shown="q",
        action="quit",
        description="quit",
        group="system",
        hint="q quit",
    ),
    Key(
        id="system.interrupt",
        keys="ctrl+c",
        shown="Ctrl-C",
        action="interrupt",
        description="stop a search, else quit",
        group="system",
    ),
)
