"""What is left of one value: functions that let through numbers, and words from short lists.

Each takes anything a stranger or an engine may have written, and returns something of a known shape or
None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from spectrace.format.fields import FIELD_BY_NAME
from spectrace.report.allowed import PARAMETER_WORDS, PUBLISHERS, SETTING_WORDS
from spectrace.report.vocabulary import is_plain

OTHER = "other"
"""Stands for a word that is on no list."""
_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}((a|b|rc|\.dev|\.post)\d{1,4}){0,2}", re.ASCII)
_PART = re.compile(r"1/[1-9]\d{0,8}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,96}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MANY = 4096
"""Most entries kept of a list or map of the header."""


def nothing(value: Any) -> None:
    """Drops it."""


def integer(value: Any) -> int | None:
    """An integer."""
    return value if type(value) is int else None


def number(value: Any) -> float | int | None:
    """A number."""
    return value if type(value) in (int, float) else None


def boolean(value: Any) -> bool | None:
    """True or false."""
    return value if type(value) is bool else None


def integers(value: Any) -> list[int] | None:
    """A list of integers, as layers are named."""
    is_list = type(value) is list and len(value) <= 256
    return value if is_list and all(type(item) is int for item in value) else None


def numbers(value: Any) -> list[float | int] | None:
    """A list of numbers, as rates are given."""
    is_list = type(value) is list and len(value) <= 256
    return value if is_list and all(type(item) in (int, float) for item in value) else None


def word(known: frozenset[str]) -> Callable[[Any], str | None]:
    """One of some words, or *other*."""
    return lambda value: None if not isinstance(value, str) else value if value in known else OTHER


def words(known: frozenset[str]) -> Callable[[Any], list[str] | None]:
    """A list of some words; others as *other*."""
    one = word(known)
    return lambda value: (
        [one(item) or OTHER for item in value[:_MANY]] if isinstance(value, (list, tuple)) else None
    )


def version(value: Any) -> str | None:
    """The public part of a version: what stands behind a plus is dropped."""
    found = _VERSION.match(value) if isinstance(value, str) else None
    return found.group() if found else None


def day(value: Any) -> str | None:
    """The day of a time."""
    found = _DAY.match(value) if isinstance(value, str) else None
    return f"{found.group()}T00:00:00Z" if found else None


def digest(value: Any) -> str | None:
    """A SHA-256 as records write it."""
    return value if isinstance(value, str) and _DIGEST.fullmatch(value) else None


def model_name(value: Any) -> str | None:
    """``publisher/model`` of a publisher that is known to be public; anything else may be a path."""
    if not isinstance(value, str):
        return None
    publisher, _, name = value.partition("/")
    return value if publisher in PUBLISHERS and _NAME.fullmatch(name) else None


def settings(known: frozenset[str]) -> Callable[[Any], dict[str, Any] | None]:
    """Entries of a map whose key is known and whose value is a number, a version or a known word."""

    def reduce(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, Mapping):
            return None
        found = {key: _setting(item) for key, item in value.items() if key in known}
        return {key: item for key, item in found.items() if item is not None}

    return reduce


def _setting(value: Any) -> Any:
    if isinstance(value, str) and _PART.fullmatch(value):
        return value
    if type(value) in (bool, int, float) or (isinstance(value, str) and value in SETTING_WORDS):
        return value
    if isinstance(value, list):
        return numbers(value) or parameter_names(value)
    return version(value)


def parameter_names(value: Any) -> list[str] | None:
    """Names of parameters with every part that is not known shown as a star."""
    if not isinstance(value, (list, tuple)):
        return None
    return [_parameter_name(item) for item in value[:_MANY] if isinstance(item, str)]


def _parameter_name(name: str) -> str:
    parts = (
        p if p in PARAMETER_WORDS or re.fullmatch(r"\d{1,3}", p, re.ASCII) else "*" for p in name.split(".")
    )
    return ".".join(list(parts)[:12])


def fingerprints(value: Any) -> dict[str, Any] | None:
    """Shape, RMS and digest of each weight."""
    if not isinstance(value, Mapping):
        return None
    left: dict[str, Any] = {}
    for name, found in list(value.items())[:_MANY]:
        if isinstance(name, str) and isinstance(found, Mapping):
            short = _parameter_name(name)
            given = {"shape": integers(found.get("shape")), "rms": number(found.get("rms"))}
            given["digest"] = digest(found.get("digest"))  # type: ignore[assignment]
            left[short if short not in left else f"{short} {len(left)}"] = {
                key: item for key, item in given.items() if item is not None
            }
    return left


def unavailable(value: Any) -> dict[str, str] | None:
    """Why fields are missing: names of known fields, and reasons made of words that are known."""
    if not isinstance(value, Mapping):
        return None
    return {
        name: reason if _is_reason(reason) else "not recorded (reason removed)"
        for name, reason in value.items()
        if name in FIELD_BY_NAME
    }


def _is_reason(reason: Any) -> bool:
    return isinstance(reason, str) and is_plain(reason) and not any(map(str.isdigit, reason))
