"""A configuration as typed answers: a key of the wrong type reads as missing, never as an exception.

Knows no key by name; what a key means is for whoever asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LARGEST = 2**53


class Config:
    """One JSON object, asked by path of keys.

    >>> config = Config({"eagle_config": {"layer_ids": [1, 2], "use": True}, "hidden_size": "big"})
    >>> config.ids("eagle_config", "layer_ids"), config.flag("eagle_config", "use")
    ((1, 2), True)
    >>> config.integer("hidden_size"), config.has("hidden_size"), config.has("eagle_config", "norm")
    (None, True, False)
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values: Mapping[str, Any] = values or {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def at(self, *keys: str) -> Any:
        """The value as it stands; None where any key is missing."""
        value: Any = self._values
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def names(self) -> tuple[str, ...]:
        """The keys of this object."""
        return tuple(self._values)

    def has(self, *keys: str) -> bool:
        """Whether anything but null stands there."""
        return self.at(*keys) is not None

    def section(self, *keys: str) -> Config:
        """An object inside; empty where there is none."""
        value = self.at(*keys)
        return Config(value if isinstance(value, Mapping) else {})

    def over(self, other: Config) -> Config:
        """This configuration, completed by another one where it says nothing."""
        return Config({**other._values, **self._values})

    def without(self, *names: str) -> Config:
        """This configuration less some keys."""
        return Config({key: value for key, value in self._values.items() if key not in names})

    def integer(self, *keys: str) -> int | None:
        """A whole number, within what JSON readers agree on."""
        value = self.at(*keys)
        if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST:
            value = int(value)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return value if is_number and abs(value) < _LARGEST else None

    def number(self, *keys: str) -> float | None:
        """A number."""
        value = self.at(*keys)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if abs(value) < 1e300 else None

    def flag(self, *keys: str) -> bool | None:
        """True or false."""
        value = self.at(*keys)
        return value if isinstance(value, bool) else None

    def text(self, *keys: str) -> str | None:
        """A text."""
        value = self.at(*keys)
        return value if isinstance(value, str) else None

    def texts(self, *keys: str) -> tuple[str, ...]:
        """A list of texts; empty where it is none."""
        value = self.at(*keys)
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    def ids(self, *keys: str) -> tuple[int, ...] | None:
        """A list of whole numbers; None where it is anything else, or empty."""
        value = self.at(*keys)
        if not isinstance(value, list) or not 0 < len(value) <= 1024:
            return None
        whole = all(isinstance(item, int) and not isinstance(item, bool) for item in value)
        return tuple(value) if whole and all(abs(item) < 2**31 for item in value) else None
