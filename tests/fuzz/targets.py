"""What is fuzzed: the doors through which a stranger's bytes come in.

Each takes bytes and must end in a result or in a `SpectraceError` of one line; anything else is a fault. Used
by `run.py` with coverage, and by `test_corpus.py` on every run of the tests.
"""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import spectrace
from spectrace.analysis.diagnosis import diagnose
from spectrace.analysis.draft.report import check_draft
from spectrace.analysis.rejection import node_states
from spectrace.checkpoint.directory import open_checkpoint
from spectrace.errors import SpectraceError
from spectrace.format.fields import LEAVES
from spectrace.format.jsonl import export_lines, import_lines
from spectrace.importing import counting
from spectrace.importing.sources import NAMES, import_parquet, import_stream
from spectrace.report.columns import ColumnRedactor

HEADER = 25
MAX_STEPS = 200
"""Steps looked at; a mutated file may claim many."""


def with_checksums(data: bytes) -> bytes:
    """The same frames with sizes and checksums that hold, so that what lies behind them is reached."""
    whole, at = b"", 0
    while at + HEADER <= len(data) and data[at : at + 2] == b"\x94\xa4":
        kind, row = data[at + 2 : at + 6], data[at + 12 : at + 20]
        size = min(int.from_bytes(data[at + 21 : at + 25], "big"), len(data) - at - HEADER)
        body = data[at + HEADER : at + HEADER + size]
        crc = zlib.crc32(kind + row + struct.pack(">I", size) + body)
        whole += b"\x94\xa4" + kind + b"\xce" + struct.pack(">I", crc) + b"\xcf" + row
        whole += b"\xc6" + struct.pack(">I", size) + body
        at += HEADER + size
    return whole + data[at:]


def _use(path: Path) -> None:
    """Everything the commands do with a trace."""
    with spectrace.open(path) as trace:
        for step in trace.steps[:MAX_STEPS]:
            node_states(step)
            repr(step)
        for _ in zip(range(MAX_STEPS), export_lines(trace)):
            pass
        redactor = ColumnRedactor(frozenset())
        for part in trace.parts:
            for chunk in part.chunks():
                redactor.redacted(chunk.columns(*(leaf.number for leaf in LEAVES)), chunk.num_rows)
        diagnose(trace).to_mapping()
        _ = trace.counts, trace.requests[:5], trace.references, trace.gaps, trace.problems, trace.state


def _on_disk(name: str, data: bytes, use: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            use(path)
        except SpectraceError as error:
            if "\n" in str(error):
                raise AssertionError(f"a sentence of several lines: {error!r}") from error


def read(data: bytes) -> None:
    """A trace file; one in two has its checksums put right."""
    _on_disk("run.spectrace", with_checksums(data[1:]) if data[:1] == b"+" else data, _use)


def import_(data: bytes) -> None:
    """JSON lines."""

    def use(path: Path) -> None:
        out = path.with_name("out.spectrace")
        import_lines(data.splitlines(keepends=True), out)
        _use(out)

    _on_disk("run.jsonl", data, use)


def foreign(data: bytes) -> None:
    """What engines write, as JSON or as a log; in one that begins with NAME and a NUL, what NAME writes."""

    def use(path: Path) -> None:
        head, found, rest = data.partition(b"\0")
        name = head.decode("ascii", "replace") if found else None
        given = rest if name in NAMES else data
        out = path.with_name("out.spectrace")
        # A few bytes may claim as many steps as are believed, which takes long and finds nothing.
        with mock.patch.multiple(counting, MAX_STEPS=2000, MAX_SUMMED=2000):
            import_stream(given.splitlines(keepends=True), out, name=name if name in NAMES else None)
        _use(out)

    _on_disk("responses.jsonl", data, use)


def parquet(data: bytes) -> None:
    """Drafts of specspecs."""

    def use(path: Path) -> None:
        out = path.with_name("out.spectrace")
        import_parquet(path, out)
        _use(out)

    _on_disk("drafts-1.parquet", data, use)


def package(data: bytes) -> None:
    """A zip or gzip file."""
    _on_disk("attach.zip", data, _use)


def check(data: bytes) -> None:
    """A draft's config.json and a safetensors file, split by a NUL."""
    config, _, tensors = data.partition(b"\0")

    def use(path: Path) -> None:
        (path.parent / "config.json").write_bytes(config)
        draft = open_checkpoint(path.parent, with_values=True)
        check_draft(draft).to_mapping()

    _on_disk("model.safetensors", tensors, use)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "read": read,
    "import": import_,
    "foreign": foreign,
    "parquet": parquet,
    "package": package,
    "check": check,
}
