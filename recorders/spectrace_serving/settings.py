"""What the environment asks for: four variables, read once. Nothing of the engine is known here."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectrace.errors import UsageError
from spectrace.format.figures import size_of

OUT, CAPTURE, SAMPLE, MAX_BYTES = (
    "SPECTRACE_OUT",
    "SPECTRACE_CAPTURE",
    "SPECTRACE_SAMPLE",
    "SPECTRACE_MAX_BYTES",
)
"""What each means stands in recorders/spectrace_vllm/README.md, once for both engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to record, and where."""

    out: Path
    is_full: bool = True
    """Probabilities and states too, not only ids."""
    every: int = 1
    """Every n-th request."""
    share: float = 1.0
    """Share of the requests, chosen by their name."""
    max_bytes: int | None = None

    def asked(self) -> dict[str, str | int | float]:
        """What of it is not the default, as the environment says it: the header keeps it among the flags.

        >>> Settings(out=Path("traces"), is_full=False, every=2).asked()
        {'SPECTRACE_CAPTURE': 'ids', 'SPECTRACE_SAMPLE': '1/2'}
        """
        found: dict[str, str | int | float] = {} if self.is_full else {CAPTURE: "ids"}
        if self.every > 1 or self.share < 1:
            found[SAMPLE] = f"1/{self.every}" if self.every > 1 else self.share
        return found if self.max_bytes is None else found | {MAX_BYTES: self.max_bytes}

    @property
    def sentence(self) -> str:
        """What is recorded, in a few words.

        >>> Settings(out=Path("traces")).sentence
        'full, every request'
        >>> Settings(out=Path("traces"), share=0.1, max_bytes=1 << 20).sentence
        'full, 0.1 of the requests, the newest 1,048,576 bytes'
        """
        asked = self.asked()
        words = ["full" if self.is_full else "ids"]
        words.append(f"{asked[SAMPLE]} of the requests" if SAMPLE in asked else "every request")
        if self.max_bytes is not None:
            words.append(f"the newest {self.max_bytes:,} bytes")
        return ", ".join(words)

    def takes(self, number: int, request: str) -> bool:
        """Whether a request is recorded.

        Args:
            number: how many came before it.
            request: its name; the same name is always chosen alike.
        """
        return number % self.every == 0 and zlib.crc32(request.encode()) < self.share * 2**32


def from_environment(environment: Mapping[str, str]) -> Settings | None:
    """The settings, or None where nothing is to be recorded.

    Raises:
        UsageError: a variable says what it cannot mean; each of these is named.
    """
    settings, wrong = examined(environment)
    if wrong and environment.get(OUT):
        raise UsageError("; ".join(wrong))
    return settings


def examined(environment: Mapping[str, str]) -> tuple[Settings | None, list[str]]:
    """The settings, or None, and a sentence for each variable that says what it cannot mean.

    Of such a variable the settings have the default.
    """
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for name, read in ((CAPTURE, _capture), (SAMPLE, _sample), (MAX_BYTES, _bytes)):
        try:
            values |= read(environment[name]) if environment.get(name) else {}
        except ValueError as error:
            wrong.append(f"{name}={environment[name]!r}: {error}")
    return (Settings(out=Path(environment[OUT]), **values) if environment.get(OUT) else None), wrong


def _capture(text: str) -> dict[str, Any]:
    if text not in ("full", "ids"):
        raise ValueError("say full or ids")
    return {"is_full": text == "full"}


def _sample(text: str) -> dict[str, Any]:
    """Every which request, or which share of them.

    >>> _sample("1/10"), _sample("0.25")
    ({'every': 10}, {'share': 0.25})
    """
    every = re.fullmatch(r"1/([1-9][0-9]{0,8})", text)
    if every:
        return {"every": int(every[1])}
    share = float(text) if re.fullmatch(r"[0-9]*\.?[0-9]+", text) else -1.0
    if not 0 < share <= 1:
        raise ValueError("say 1/10 for every tenth request, or a share such as 0.1")
    return {"share": share}


def _bytes(text: str) -> dict[str, Any]:
    """A size in bytes.

    >>> _bytes("500M")
    {'max_bytes': 524288000}
    """
    size = size_of(text)
    if not size:
        raise ValueError("say a number of bytes, such as 500000000 or 500M")
    return {"max_bytes": size}
