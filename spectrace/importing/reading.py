"""Bytes of a stranger's file -> JSON documents, under limits; counts and texts out of them, checked.

Knows no engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spectrace.format.jsonl import MAX_LINE
from spectrace.format.text import visible

MAX_COUNT = 1 << 31
"""Largest count believed."""


class Refused(Exception):
    """The file does not hold what it must; the sentence names the field.

    Args:
        what: field and fault.
        line: line of the file, from 1; None for the one being read.
    """

    def __init__(self, what: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(what)


def documents(lines: Iterable[bytes]) -> Iterator[tuple[int, Any]]:
    """JSON documents of a file: one that fills it, one a line, or those of a list; with the line of each.

    The lines of a streamed response (``data: {..}``) are read too.

    Raises:
        Refused: it is not JSON.
    """
    numbered = enumerate(lines, 1)
    is_first = True
    for number, line in numbered:
        text = _payload(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
        if not text:
            continue
        try:
            found = _parsed(text)
        except ValueError as error:
            if not is_first or text[:1] not in (b"{", b"["):
                raise Refused(f"not JSON: {visible(str(error), limit=200)}", number) from None
            found = _whole(text, (line for _, line in numbered), number)
        is_first = False
        if isinstance(found, list):
            yield from ((number, item) for item in found)
        else:
            yield number, found


def _payload(line: bytes) -> bytes:
    """What of a line is JSON: all, what a server-sent event holds, or nothing."""
    text = line.strip()
    if text.startswith(b"data:"):
        text = text[5:].strip()
    return b"" if text == b"[DONE]" or text.startswith((b":", b"event:")) else text


def _whole(first: bytes, rest: Iterable[bytes], number: int) -> Any:
    """A document that spans lines."""
    parts, size = [first], len(first)
    for line in rest:
        parts.append(line)
        size += len(line)
        if size > MAX_LINE:
            raise Refused(
                f"a JSON document of more than {MAX_LINE:,} bytes; write one response a line", number
            )
    try:
        return _parsed(b"\n".join(parts))
    except ValueError as error:
        raise Refused(f"not JSON: {visible(str(error), limit=200)}", number) from None


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


# --- what a document says ------------------------------------------------------------------------


def inside(document: Any, *keys: str) -> Any:
    """The value at a path of keys; None where there is none."""
    for key in keys:
        if not isinstance(document, Mapping):
            return None
        document = document.get(key)
    return document


def count(document: Mapping[str, Any], name: str) -> int:
    """A count that must be there.

    Raises:
        Refused: it is missing, no whole number, negative or beyond belief.
    """
    return counted(document.get(name), name)


def optional_count(document: Any, *keys: str) -> int | None:
    """A count that may be missing or null."""
    value = inside(document, *keys)
    return None if value is None else counted(value, ".".join(keys))


def counted(value: Any, name: str) -> int:
    """A value as a count.

    Raises:
        Refused: it is none.
    """
    if type(value) is not int:
        raise Refused(f"field {name} must be a whole number" + (", it is missing" if value is None else ""))
    if not 0 <= value <= MAX_COUNT:
        raise Refused(f"field {name} must be a count from 0 to {MAX_COUNT:,}")
    return value


def counts(value: Any, name: str) -> list[int]:
    """A list of counts.

    Raises:
        Refused: it is none.
    """
    if not isinstance(value, list):
        raise Refused(f"field {name} must be a list of whole numbers")
    return [counted(item, f"{name}[{at}]") for at, item in enumerate(value)]


def number(document: Any, *keys: str) -> float | None:
    """A number that may be missing; NaN and infinity are none."""
    value = inside(document, *keys)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e300 else None


def text(document: Any, *keys: str) -> str | None:
    """A text that may be missing."""
    value = inside(document, *keys)
    return value if isinstance(value, str) and value else None
