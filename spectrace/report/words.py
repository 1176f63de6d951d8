"""Evidence and settings as text, for reports. Escapes nothing: the writers do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spectrace.format.figures import number


def plain_value(value: Any, depth: int = 0) -> str:
    """A piece of evidence as text; empty when it says nothing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, Mapping) and depth < 3:
        parts = ((str(k).replace("_", " "), plain_value(v, depth + 1)) for k, v in list(value.items())[:12])
        return ", ".join(f"{key} {text}" for key, text in parts)
    if isinstance(value, (list, tuple)) and depth < 3:
        return ", ".join(plain_value(item, depth + 1) for item in value[:16])
    return "" if value is None else str(value)[:200]


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings of a header, ``name=value``."""
    return ", ".join(f"{key}={plain_value(value)}" for key, value in list(settings.items())[:32])
