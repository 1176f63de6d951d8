r"""Readable texts of single tokens, from a copy of the vocabulary.

The copy is made on the caller's thread; after that no tokenizer is touched, so a text can be looked up
on any thread. Texts are for reading, not for decoding: bytes that are no UTF-8 become ``\xNN``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """The 256 characters in which byte-level BPE writes bytes, and the bytes.

    Printable bytes stand for themselves, the others for the code points from 256 on.
    Source: openai/gpt-2, src/encoder.py, ``bytes_to_unicode``.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _byte_alphabet()


def byte_level_text(token: str) -> str:
    r"""Text of a byte-level BPE token; a token that is not written in that alphabet is left as it is.

    >>> byte_level_text("Ġhello"), byte_level_text("âĤ¬"), byte_level_text("âĤ")
    (' hello', '€', '\\xe2\\x82')
    """
    try:
        return bytes(_BYTES[character] for character in token).decode("utf-8", "backslashreplace")
    except KeyError:
        return token


def sentencepiece_text(token: str) -> str:
    r"""Text of a SentencePiece token.

    >>> sentencepiece_text("▁the"), sentencepiece_text("<0x0A>"), sentencepiece_text("<0xE2>")
    (' the', '\n', '\\xe2')
    """
    byte = _BYTE_PIECE.fullmatch(token)
    if byte is not None:
        return bytes([int(byte[1], 16)]).decode("utf-8", "backslashreplace")
    return token.replace("▁", " ")


class Vocabulary:
    """A copy of a tokenizer's tokens.

    Args:
        tokenizer: a transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokens: Sequence[str | None] = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        self._added = frozenset(tokenizer.get_added_vocab().values())
        self._readable = _reading_of(self._tokens)
        self.digest = _digest(self._tokens)
        """SHA-256 of the tokens in the order of their ids, each ended by a NUL byte."""

    def __len__(self) -> int:
        return len(self._tokens)

    def text(self, token_id: int) -> str | None:
        """Readable text of a token, None for an id the tokenizer does not have."""
        if not 0 <= token_id < len(self._tokens):
            return None
        token = self._tokens[token_id]
        if token is None or token_id in self._added:
            return token
        return self._readable(token)


def _digest(tokens: Sequence[str | None]) -> str:
    joined = "".join(f"{token}\0" for token in tokens)
    return "sha256:" + hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()


def _reading_of(tokens: Sequence[str | None]) -> Callable[[str], str]:
    """How the tokens of this vocabulary are read: by the mark it uses for a space."""
    byte_level = sum(token is not None and token.startswith("Ġ") for token in tokens)
    sentencepiece = sum(token is not None and token.startswith("▁") for token in tokens)
    if byte_level > sentencepiece:
        return byte_level_text
    if sentencepiece:
        return sentencepiece_text
    return str
