"""Every error spectrace raises, in one tree.

Constructors take facts (path, offset, engine) and build the sentence: what, where, what now.
Nothing here computes or does I/O.

    SpectraceError
      TraceError              a file is at fault
        NotATrace             the first bytes are not a trace's
        UnsupportedVersion    written by a newer spectrace
        TruncatedTrace        the file ends inside its header
        CorruptRecord         a record does not hold what it must
        ImportFailed          a JSON line does not hold what it must
      RecorderError           recording is at fault
        EngineNotInstalled    an extra is missing
        UnsupportedEngine     an engine's version or model does not fit
      CheckpointError         a model directory is at fault
      UsageError              the command line is at fault
      ViewerFault             the viewer itself is at fault
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath


def _name(path: str | PathLike[str] | None) -> str:
    """A path as it is shown in a sentence, control characters made visible."""
    if path is None:
        return "trace"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(fspath(path)))


class SpectraceError(Exception):
    """Base of everything that spectrace raises on purpose."""


class TraceError(SpectraceError):
    """A trace file is at fault.

    Args:
        path: the file.
        what: the rest of the sentence.
        offset: byte offset of the fault, where known.
    """

    def __init__(self, path: str | PathLike[str] | None, what: str, offset: int | None = None) -> None:
        self.path = path
        self.offset = offset
        super().__init__(f"{_name(path)}: {what}")


class NotATrace(TraceError):
    """The first bytes are not those of a trace."""

    def __init__(self, path: str | PathLike[str] | None, what: str = "not a spectrace trace") -> None:
        super().__init__(path, what, 0)


class UnsupportedVersion(TraceError):
    """The file was written by a newer spectrace."""

    def __init__(
        self, path: str | PathLike[str] | None, found: object, newest: int, what: str = "format"
    ) -> None:
        self.found = found
        self.newest = newest
        super().__init__(
            path,
            f"written with {what} {found}, this spectrace reads up to {newest}; "
            "a newer spectrace opens it (pip install -U spectrace-tui)",
        )


class TruncatedTrace(TraceError):
    """The file ends before its header does."""

    def __init__(self, path: str | PathLike[str] | None, size: int) -> None:
        super().__init__(path, f"ends after {size:,} bytes, inside its header; no step can be read", size)


class CorruptRecord(TraceError):
    """A record does not hold what it must.

    Args:
        path: the file.
        where: record and field, for example ``STEP frame, field taps.rms``.
        expected: what was expected there.
        offset: byte offset of the record.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None,
        where: str,
        expected: str,
        offset: int | None = None,
    ) -> None:
        self.where = where
        self.expected = expected
        at = "" if offset is None else f" at byte {offset:,}"
        super().__init__(path, f"{where}{at}: {expected}", offset)


class ImportFailed(TraceError):
    """A JSON line does not hold what it must; nothing was written.

    Args:
        path: the file, ``-`` for standard input.
        line: line number, from 1.
        what: field and fault.
    """

    def __init__(self, path: str | PathLike[str] | None, line: int, what: str) -> None:
        self.line = line
        super().__init__(path, f"line {line:,}: {what}; nothing was written")


class RecorderError(SpectraceError):
    """Recording is at fault."""


class EngineNotInstalled(RecorderError):
    """An engine's packages are missing.

    Args:
        engine: name of the recorder.
        extra: the extra that brings the packages.
    """

    def __init__(self, engine: str, extra: str) -> None:
        self.engine = engine
        self.extra = extra
        super().__init__(
            f"recording with {engine} needs packages that are not installed; "
            f"type: pip install 'spectrace-tui[{extra}]'"
        )


class UnsupportedEngine(RecorderError):
    """An engine, its version or a model does not fit the recorder."""

    def __init__(self, engine: str, what: str) -> None:
        self.engine = engine
        super().__init__(f"{engine}: {what}")


class CheckpointError(SpectraceError):
    """A model directory, or a file in it, is at fault.

    Args:
        path: directory or file.
        what: the rest of the sentence.
        tensor: the tensor at fault, where there is one.
        needs: a package without which the file is not read; then the file itself is not at fault.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        what: str,
        tensor: str | None = None,
        needs: str | None = None,
    ) -> None:
        self.path = path
        self.what = what
        self.tensor = tensor
        self.needs = needs
        named = "" if tensor is None else f"tensor {_name(tensor)}: "
        super().__init__(f"{_name(path)}: {named}{what}")


class UsageError(SpectraceError):
    """The command line or the arguments of a call are at fault."""


class ViewerFault(SpectraceError):
    """The viewer ended by a fault of its own.

    Args:
        lines: where and what, for whoever mends it.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        where = "".join(f"\n  {line}" for line in lines)
        super().__init__(
            "the viewer ended by a fault of its own, please report it with the lines below; "
            f"spectrace view --plain prints what the screens show{where}"
        )
