"""A hostile trace yields whole steps or a named error, in bounded memory and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.format import hostile_child
from tests.format.hostile import CASES, HEADS, describe

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

MAX_MIB = 300
MAX_SECONDS = 10
HARMLESS = {
    "a_truthful_index",
    "amendments_that_nest",
    "chain: to none",
    "others: a kind of escapes",
}
"""Cases that need no complaint: what is odd in them does not matter."""
Ask = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Asks a forked reader what it makes of a file."""
    command = [sys.executable, hostile_child.__file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        def asked(path: Path) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            found: dict[str, Any] = json.loads(process.stdout.readline())
            return found

        yield asked
        process.stdin.close()


@pytest.mark.parametrize("name", CASES, ids=describe)
def test_a_hostile_trace_is_harmless(ask: Ask, tmp_path: Path, name: str) -> None:
    """No foreign exception, at most 300 MiB and 10 s; the good steps are shown unless the header is bad."""
    path = tmp_path / "hostile.spectrace"
    path.write_bytes(CASES[name]())
    told = ask(path)
    assert told["status"] == 0, "an exception that is no SpectraceError left the reader"
    assert told["mib"] <= MAX_MIB
    assert told["seconds"] <= MAX_SECONDS
    assert all(message.isprintable() and len(message) < 1000 for message in told["messages"])
    if told["outcome"] == "refused":
        assert name.removeprefix("head: ") in HEADS, told
    else:
        assert told["good"] == 2
        assert told["repaired True"] == told["repaired False"]
        assert told["repaired True"][0] == 2
    assert told["messages"] or name in HARMLESS, "nothing was said"
