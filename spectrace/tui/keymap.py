"""A reader's own keys: lines of `id = "key,key"` in a file, and the keys that come of it.

The file is a small part of TOML, read here, since Python 3.10 has no reader for all of it:

    # spectrace view --keys lists the ids
    hunt.first = "f,f5"
    search.filter = "&"

A file that cannot be used changes nothing and is named in one sentence.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from spectrace.format.text import visible
from spectrace.tui.keys import Key, key_id

_LINE = re.compile(r"""\s*(?P<id>[a-z_.]+)\s*=\s*(?P<quote>["'])(?P<keys>.*)(?P=quote)\s*(#.*)?""")
_LONGEST = 64 << 10


def keymap_path() -> Path:
    """Where the file lies."""
    from platformdirs import user_config_path

    return user_config_path("spectrace", appauthor=False) / "keys.toml"


def own_keys(keys: Sequence[Key], path: Path) -> tuple[tuple[Key, ...], str]:
    """The keys with those of a file in their place.

    Returns:
        The keys, and a sentence about what is wrong with the file, "" for nothing. A key that the file
        gives to one thing is taken from the other that had it.
    """
    try:
        changes = _changes(_text_of(path), [key.id for key in keys])
    except FileNotFoundError:
        return tuple(keys), ""
    except OSError as error:
        return tuple(keys), f"{visible(path.name)}: {error.strerror or error}; the keys are the usual ones"
    except ValueError as error:
        what = "is no text" if isinstance(error, UnicodeDecodeError) else str(error)
        return tuple(keys), f"{visible(path.name)}: {what}; the keys are the usual ones"
    taken = {name for names in changes.values() for name in names}
    changed = []
    for key in keys:
        usual = [name for name in key.keys.split(",") if name not in taken]
        changed.append(replace(key, keys=",".join(changes.get(key.id, usual))))
    return tuple(changed), ""


def _text_of(path: Path) -> str:
    """What the file holds.

    Raises:
        ValueError: it is none that is read to its end at once.
    """
    # Opening a pipe would wait for its writer.
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("is no regular file")
        data = os.read(fd, _LONGEST + 1)
    finally:
        os.close(fd)
    if len(data) > _LONGEST:
        raise ValueError(f"is longer than {_LONGEST:,} bytes")
    return data.decode("utf-8")


def _changes(text: str, ids: Sequence[str]) -> dict[str, list[str]]:
    """Id -> keys.

    Raises:
        ValueError: a line is not understood; the sentence names it.
    """
    changes: dict[str, list[str]] = {}
    owners: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f'line {number} is not of the form id = "key,key"')
        name = found["id"]
        if name not in ids:
            near = get_close_matches(name, ids, n=1)
            hint = f"did you mean {near[0]}" if near else "spectrace view --keys lists them"
            raise ValueError(f"line {number}: there is no {name}, {hint}")
        changes[name] = []
        for written in filter(None, map(str.strip, found["keys"].split(","))):
            key = key_id(written)
            if key is None:
                raise ValueError(f"line {number}: there is no key {visible(written, limit=24)}")
            if owners.setdefault(key, name) != name:
                raise ValueError(f"line {number}: {owners[key]} has the key {visible(written)} already")
            changes[name].append(key)
    return changes
