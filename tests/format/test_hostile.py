"""A hostile trace yields whole steps or a named error, in bounded memory and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.format import hostile_child
from tests.format.hostile import CASES, HEADS, describe

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

MAX_MIB = 300
MAX_SECONDS = 10
NAMELESS = {"others: requests at the header"}
"""Cases whose index hides the request's name; its steps are shown, and that the name is lost is said."""
SILENT = (
    "a_truthful_index",
    "amendments_that_nest",
    "frames_within_frames",
    "groups: everything rejected",
    "head: many keys",
    "others: a kind of escapes",
    "step: * num_accepted",
    "step: a chain of parents",
    "step: extra over known keys",
    "step: fewer parents",
    "step: many columns",
    "step: many words",
    "step: null times",
    "step: parents *",
    "step: the same column twice",
    "step: unknown columns",
    "step: unknown keys *",
    "tail: end no map",
    "tail: lost no number",
    "tiny_frames",
)
"""Cases that are odd but whole: values of the right type that make no sense are shown as they are."""
Ask = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Asks forked readers what they make of a file."""
    command = [sys.executable, hostile_child.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        def asked(path: Path) -> list[dict[str, Any]]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            found: list[dict[str, Any]] = json.loads(process.stdout.readline())
            return found

        yield asked
        process.stdin.close()


@pytest.mark.parametrize("name", CASES, ids=describe)
def test_a_hostile_trace_is_harmless(ask: Ask, tmp_path: Path, name: str) -> None:
    """No foreign exception, at most 300 MiB and 10 s of computing; the good steps are shown."""
    path = tmp_path / "hostile.spectrace"
    path.write_bytes(CASES[name]())
    for told in ask(path):
        assert "crashed" not in told, f"{told['name']}: {told['crashed']}"
        assert told["mib"] <= MAX_MIB, told["name"]
        assert told["seconds"] <= MAX_SECONDS, told["name"]
        messages = told.get("messages", [])
        assert all(message.isprintable() and len(message) < 1000 for message in messages)
        if "refused" in told:
            assert name.removeprefix("head: ") in HEADS, messages
        if "good" in told:
            assert told["good"] == (0 if name in NAMELESS else 2)
            assert messages or any(fnmatch(name, silent) for silent in SILENT), "nothing was said"
        if "good again" in told:
            assert told["good again"] == (0 if name in NAMELESS else 2)
