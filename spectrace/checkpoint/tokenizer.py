"""Facts of a tokenizer, from its files: which text each id stands for, and the special ids.

Reads tokenizer.json alone; a sentencepiece or tiktoken model is named and not opened. Merges are not parsed:
they are most of the file and say nothing about ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spectrace.checkpoint.config import Config
from spectrace.checkpoint.files import parse_object, read_object, read_whole, sha256
from spectrace.checkpoint.records import Fault, Tokenizer
from spectrace.errors import CheckpointError

_FILE_LIMIT = 128 << 20
_PARSED_LIMIT = 24 << 20
_MERGES = re.compile(rb'"merges"\s*:\s*\[')
_SPECIAL = ("bos", "eos", "pad")


def read_tokenizer(directory: Path, config: Config) -> tuple[Tokenizer | None, tuple[Fault, ...]]:
    """The tokenizer of a model directory; None, without a fault, where there is no tokenizer.json.

    Args:
        directory: of the model.
        config: its config.json, which may declare special ids.
    """
    path = directory / "tokenizer.json"
    if not path.exists() and not path.is_symlink():
        return None, ()
    try:
        data = read_whole(path, _FILE_LIMIT)
        texts = _texts(_parse(data, path))
    except CheckpointError as error:
        return None, (Fault(str(error.path), error.what),)
    special, faults = _special_ids(directory, config, texts)
    return Tokenizer(digest=sha256(data), texts=texts, special_ids=special), faults


def _special_ids(
    directory: Path, config: Config, texts: Mapping[int, str]
) -> tuple[dict[str, tuple[int, ...]], tuple[Fault, ...]]:
    """Special ids: as generation stops on them, else as the model, else as the tokenizer declares them."""
    declared = Config()
    faults = []
    for name in ("generation_config.json", "config.json", "tokenizer_config.json"):
        path = directory / name
        if name == "config.json":
            declared = declared.over(_ids_by_text(config, texts))
        elif path.exists():
            try:
                declared = declared.over(_ids_by_text(Config(read_object(path)), texts))
            except CheckpointError as error:
                faults.append(Fault(str(error.path), error.what))
    special = {}
    for kind in _SPECIAL:
        one = declared.integer(f"{kind}_token_id")
        found = declared.ids(f"{kind}_token_id") or (() if one is None else (one,))
        if found:
            special[kind] = found
    return special, tuple(faults)


def _parse(data: bytes, path: Path) -> Config:
    """The file as an object, without its merges where they stand last, as `tokenizers` writes them."""
    merges = _MERGES.search(data)
    if merges is not None and merges.start() <= _PARSED_LIMIT:
        try:
            return Config(parse_object(data[: merges.start()] + b'"merges":[]}}', path))
        except CheckpointError:
            if len(data) > _PARSED_LIMIT:
                raise
    if len(data) > _PARSED_LIMIT:
        raise CheckpointError(path, f"{len(data):,} bytes; its vocabulary is too large to be read")
    return Config(parse_object(data, path))


def _texts(tokenizer: Config) -> dict[int, str]:
    """Id -> text, of the model's vocabulary and the added tokens."""
    vocab = tokenizer.at("model", "vocab")
    pairs: list[tuple[Any, Any]] = []
    if isinstance(vocab, Mapping):
        pairs = [(token_id, text) for text, token_id in vocab.items()]
    elif isinstance(vocab, list):  # Unigram: [text, score] in the order of ids
        pairs = [(i, entry[0]) for i, entry in enumerate(vocab) if isinstance(entry, list) and entry]
    added = tokenizer.at("added_tokens")
    if isinstance(added, list):
        pairs += [(entry.get("id"), entry.get("content")) for entry in added if isinstance(entry, Mapping)]
    return {i: text for i, text in pairs if type(i) is int and 0 <= i < 2**31 and isinstance(text, str)}


def _ids_by_text(config: Config, texts: Mapping[int, str]) -> Config:
    """Special ids of a file that names them by id or by text."""
    found: dict[str, Any] = {}
    wanted = {kind: _token_text(config, kind) for kind in _SPECIAL}
    ids = {text: i for i, text in texts.items() if text in wanted.values()}
    for kind, text in wanted.items():
        value = config.at(f"{kind}_token_id")
        if value is None and text is not None:
            value = ids.get(text)
        if value is not None:
            found[f"{kind}_token_id"] = value
    return Config(found)


def _token_text(config: Config, kind: str) -> str | None:
    """``eos_token`` as a text or as an object with ``content``."""
    return config.text(f"{kind}_token") or config.text(f"{kind}_token", "content")
