"""Text from a trace, made safe to show.

A token, a request name or a path in a trace comes from a stranger and may hold terminal escapes, bidi
controls or newlines. `visible` shows each of them as an escape; nothing else in the project prints such text.
"""

from __future__ import annotations

import re
import unicodedata

_PLAIN = re.compile(r"[ -\[\]-~]*")
_SHOWN_CATEGORIES = frozenset("LMNPS")
_INVISIBLE = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")
"""Letters and marks that draw nothing."""


def visible(text: str, *, limit: int | None = None) -> str:
    r"""The text with everything that is not plainly visible shown as an escape.

    Escaped are control characters (C0, DEL, C1), newlines and tabs, bidi and other format characters,
    separators but the space, lone surrogates, private and unassigned characters, variation selectors and the
    backslash itself, so that what is read is never ambiguous.

    Args:
        text: anything.
        limit: longest result in characters; a longer one ends in ``…``.

    >>> visible("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    if limit is not None and len(text) > limit:
        text = text[:limit]
        cut = True
    else:
        cut = False
    shown = text if _PLAIN.fullmatch(text) else "".join(map(_shown, text))
    if limit is not None and (cut or len(shown) > limit):
        shown = shown[: max(0, limit - 1)] + "…"
    return shown


def _shown(char: str) -> str:
    if char == " " or ("!" <= char <= "~" and char != "\\"):
        return char
    if char == "\\":
        return "\\\\"
    code = ord(char)
    is_variation = 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF
    if unicodedata.category(char)[0] in _SHOWN_CATEGORIES and char not in _INVISIBLE and not is_variation:
        return char
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
