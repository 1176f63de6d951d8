"""What the environment asks for: four variables, read once. Nothing of the engine is known here."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
        UsageError: a variable says what it cannot mean.
    """
    if not environment.get(OUT):
        return None
    capture = environment.get(CAPTURE) or "full"
    if capture not in ("full", "ids"):
        raise UsageError(f"{CAPTURE}={capture!r}: say full or ids")
    every, share = _sample(environment.get(SAMPLE) or "1")
    return Settings(
        out=Path(environment[OUT]),
        is_full=capture == "full",
        every=every,
        share=share,
        max_bytes=_bytes(environment.get(MAX_BYTES)),
    )


def _sample(text: str) -> tuple[int, float]:
    """Every which request, and which share of them.

    >>> _sample("1/10"), _sample("0.25")
    ((10, 1.0), (1, 0.25))
    """
    every = re.fullmatch(r"1/([1-9][0-9]{0,8})", text)
    if every:
        return int(every[1]), 1.0
    share = float(text) if re.fullmatch(r"[0-9]*\.?[0-9]+", text) else -1.0
    if not 0 < share <= 1:
        raise UsageError(f"{SAMPLE}={text!r}: say 1/10 for every tenth request, or a share such as 0.1")
    return 1, share


def _bytes(text: str | None) -> int | None:
    """A size in bytes.

    >>> _bytes("500M"), _bytes(None)
    (524288000, None)
    """
    if not text:
        return None
    size = size_of(text)
    if not size:
        raise UsageError(f"{MAX_BYTES}={text!r}: say a number of bytes, such as 500000000 or 500M")
    return size
