"""What the environment says of the terminal: slow line, colours, mouse. Decided once, before Textual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_WITHOUT_SCREEN = frozenset({"", "dumb", "unknown", "vt52", "vt100", "vt102"})
"""Values of TERM that place no text, or know neither colours nor a screen of their own."""


def places_text(environ: Mapping[str, str]) -> bool:
    """Whether the viewer can draw on this terminal.

    >>> places_text({"TERM": "xterm"}), places_text({"TERM": "vt100"})
    (True, False)
    """
    return environ.get("TERM", "") not in _WITHOUT_SCREEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """How to treat the terminal."""

    is_frugal: bool
    """Send only what changed: a line may be slow without saying so."""
    is_ansi: bool
    """Use the terminal's own 16 colours, or none, and its own background."""
    has_mouse: bool
    """Ask for mouse reports; without them the terminal's own selection works."""


def terminal_of(environ: Mapping[str, str]) -> Terminal:
    """The terminal that these variables describe.

    `SPECTRACE_FRUGAL=0` sends whole rows, for a terminal that loses its place. ssh does not pass COLORTERM
    on, so that a missing one means nothing is known of the colours.

    >>> terminal_of({"SSH_CONNECTION": "1", "COLORTERM": "truecolor"})
    Terminal(is_frugal=True, is_ansi=True, has_mouse=False)
    """
    is_remote = bool(environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"))
    has_colours = environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")
    return Terminal(
        is_frugal=environ.get("SPECTRACE_FRUGAL", "") != "0",
        is_ansi=is_remote or not has_colours or "NO_COLOR" in environ,
        has_mouse=not is_remote,
    )
