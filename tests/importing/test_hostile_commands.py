"""Hostile files of every source through `import`, and what comes of them through every other command."""

from __future__ import annotations

import copy
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spectrace.importing.sources import JSON_LINES, LLAMA_LOG, NAMES, SPECSPECS
from tests.importing import command_child
from tests.importing.test_hostile import AIPERF, DSPARK, LLAMA, SGLANG, VLLM
from tests.importing.test_sources import DATA, lines

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

MAX_MIB = 300
MAX_SECONDS = 10
NASTY = "\x1b]52;c;eA==\x07\u202e[bold]x[/]\n<script>|`@me`\x9b2J"
STEPS = 1 << 18
JSON: dict[str, dict[str, Any]] = {
    "vllm": VLLM, "sglang": SGLANG, "dspark": DSPARK, "llama.cpp": LLAMA, "aiperf": AIPERF,
    JSON_LINES: {"record": "run", "schema": 1},
}  # fmt: skip
Ask = Callable[..., dict[str, Any]]


def dumped(*documents: Any) -> bytes:
    """Documents, one a line."""
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def named(document: dict[str, Any]) -> dict[str, Any]:
    """A document with escapes, markup and bidi controls for names, and in keys that nobody knows."""
    names = {"id": NASTY, "model": NASTY, NASTY: {NASTY: [NASTY]}}
    found = copy.deepcopy(document) | names
    for inner in ("meta_info", "spec_decode_acceptance"):
        if inner in found:
            found[inner] |= {**names, "engine": NASTY}
    found["metadata"] = {"x_request_id": NASTY}
    for record in found.get("records", ()):
        for detail in record["reqs"]:
            detail["rid"] = NASTY
    return found


def claiming(steps: int, each: int) -> dict[str, bytes]:
    """Few bytes that claim so many steps of so many draft tokens, per source."""
    histogram = [steps] + [0] * each
    counted = {"num_spec_steps": steps, "num_draft_tokens": steps * each, "num_spec_tokens": each}
    meta = {"spec_verify_ct": steps, "spec_num_proposed_drafts": steps * each, "spec_num_correct_drafts": 0}
    total = min(steps * each, STEPS)
    log = b"".join(
        b"slot x: id 0 | task 1 | generate_draft: id=1, #tokens=%d, #draft=%d\n"
        b"slot x: id 0 | task 1 | add accepted tokens: sampled=7, ids.size=1, n_draft=%d\n" % (n, each, each)
        for n in range(min(steps, 2000))
    )
    detail = {**DSPARK["records"][0]["reqs"][0], "verify_len": each + 1, "draft_tokens": [1] * min(each, 9)}
    return {
        "vllm": dumped({"metrics": {"speculative_decoding": {"acceptance_histogram": histogram, **counted}}}),
        "sglang": dumped({"meta_info": {**meta, "spec_correct_drafts_histogram": histogram}}),
        "dspark": dumped({**DSPARK, "records": [{"reqs": [detail] * 50}] * 50}),
        "llama.cpp": dumped(*[{"timings": {"draft_n": total, "draft_n_accepted": 0}}] * 20),
        "aiperf": dumped(
            {"spec_decode_acceptance": {"engine": "x", "acceptance_histogram": {"0": steps}, **counted}}
        ),
        LLAMA_LOG: log,
        JSON_LINES: dumped({"record": "run", "schema": 1})
        + b'{"record":"step","proposal_ids":['
        + b"1," * 9999,
    }


def logged(text: bytes) -> bytes:
    """The log with a text as every piece."""
    return b"".join(lines("llama-server.log")).replace(b"' w", b"' " + text + b"w")


def in_parquet(**columns: Any) -> bytes:
    """Drafts with other columns."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(DATA / "specspecs/drafts-1-00000.parquet")
    rows = [row | columns for row in table.to_pylist()]
    into = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), into)
    return into.getvalue()


def of(name: str) -> dict[str, Callable[[], bytes]]:
    """What is tried of a source."""
    if name == SPECSPECS:
        whole = (DATA / "specspecs/drafts-1-00000.parquet").read_bytes()
        return {
            "names": lambda: in_parquet(sequence_id=NASTY),
            "long": lambda: in_parquet(draft_tokens=[1] * 5000),
            "ids": lambda: in_parquet(emitted_token=-1),
            "types": lambda: in_parquet(draft_tokens=NASTY),
            "cut": lambda: whole[: len(whole) // 2],
            "noise": lambda: bytes(range(256)) * 400,
            "empty": lambda: b"",
        }
    tried = {
        "much of one": lambda: claiming(STEPS // 2, 3)[name],
        "more than is believed of one": lambda: claiming(STEPS + 1, 3)[name],
        "long steps": lambda: claiming(1 << 13, 1024)[name],
        "many that claim much": lambda: claiming(STEPS, 3)[name] * 40,
        "steps beyond belief": lambda: claiming(1 << 13, 1025)[name],
        "noise": lambda: bytes(range(256)) * 400,
        "empty": lambda: b"",
        "one long line": lambda: b"{" + b" " * (1 << 24),
        "depth": lambda: b'{"a":' * 200_000,
    }
    if name == LLAMA_LOG:
        return {**tried, "names": lambda: logged(NASTY.replace("\n", "").encode())}
    document = JSON[name]
    tried["names"] = lambda: dumped(*[named(document)] * 3)
    tried["cut"] = lambda: dumped(document)[:-9]
    tried["numbers"] = lambda: dumped(document).replace(b"2", b"9" * 5000)
    tried["null"] = lambda: dumped(document).replace(b"2", b"null")
    return tried


CASES = [(name, what) for name in NAMES for what in of(name)]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Asks for a command line to be run."""
    command = [sys.executable, command_child.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        def asked(*arguments: str | Path) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([str(argument) for argument in arguments]) + "\n")
            process.stdin.flush()
            found: dict[str, Any] = json.loads(process.stdout.readline())
            assert found["code"] in (0, 1), found["err"][-3000:]
            assert found["mib"] <= MAX_MIB
            assert found["seconds"] <= MAX_SECONDS
            assert all(line.isprintable() for line in (found["out"] + found["err"]).splitlines())
            return found

        yield asked
        process.stdin.close()


def others(trace: Path) -> list[tuple[str | Path, ...]]:
    """Every command that takes a trace."""
    beside = trace.parent
    return [
        ("stats", trace, "--by", "request"),
        ("steps", trace, "--limit", "20"),
        ("diagnose", trace, "--full"),
        ("diff", trace, trace),
        ("view", trace, "--plain"),
        ("export", trace, "-o", beside / "out.jsonl"),
        ("repair", trace, "-o", beside / "repaired.spectrace"),
        ("report", trace, "-o", beside / "out.md"),
        ("report", trace, "-o", beside / "out.html"),
        ("pack", trace, "-o", beside / "out.zip"),
    ]


@pytest.mark.parametrize(("name", "what"), CASES)
def test_a_hostile_file_is_harmless_everywhere(ask: Ask, tmp_path: Path, name: str, what: str) -> None:
    """It ends in one sentence and no file, or in a trace that every command takes; soon, in little memory."""
    source, trace = tmp_path / "given", tmp_path / "run.spectrace"
    source.write_bytes(of(name)[what]())
    found = ask("import", source, "--from", name, "-o", trace)
    if found["code"]:
        assert found["err"].startswith("spectrace: ")
        assert len(found["err"].splitlines()) == 1
        assert list(tmp_path.iterdir()) == [source]
        return
    for command in others(trace):
        told = ask(*command)
        assert told["code"] == 0 or told["err"].startswith("spectrace: "), told["err"]
        assert "Traceback" not in told["err"]


def test_what_is_tried_is_refused_and_accepted() -> None:
    """Every source that import knows is in the table, with names to be shown and claims to be refused."""
    assert {name for name, _ in CASES} == set(NAMES)
    assert all({"names", "noise", "empty"} <= set(of(name)) for name in (*JSON, LLAMA_LOG, SPECSPECS))
