"""spectrace records what speculative decoding did, step by step, and reads it back.

The names below are loaded when they are first used, so that ``spectrace --help`` does not pay for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spectrace.analysis.comparison import Comparison as Comparison
    from spectrace.analysis.comparison import compare as compare
    from spectrace.analysis.diagnosis import Diagnosis as Diagnosis
    from spectrace.analysis.diagnosis import diagnose as diagnose
    from spectrace.errors import RecorderError as RecorderError
    from spectrace.errors import SpectraceError as SpectraceError
    from spectrace.errors import TraceError as TraceError
    from spectrace.format.counts import Counts as Counts
    from spectrace.format.reader import Trace as Trace
    from spectrace.format.reader import open as open
    from spectrace.format.records import Request as Request
    from spectrace.format.records import Run as Run
    from spectrace.format.records import Step as Step
    from spectrace.format.records import Tap as Tap
    from spectrace.format.series import Ragged as Ragged
    from spectrace.format.writer import TraceWriter as TraceWriter

__version__ = "0.1.0"

_HOMES = {
    "Comparison": "spectrace.analysis.comparison",
    "Counts": "spectrace.format.counts",
    "Diagnosis": "spectrace.analysis.diagnosis",
    "Ragged": "spectrace.format.series",
    "RecorderError": "spectrace.errors",
    "Request": "spectrace.format.records",
    "Run": "spectrace.format.records",
    "SpectraceError": "spectrace.errors",
    "Step": "spectrace.format.records",
    "Tap": "spectrace.format.records",
    "Trace": "spectrace.format.reader",
    "TraceError": "spectrace.errors",
    "TraceWriter": "spectrace.format.writer",
    "compare": "spectrace.analysis.comparison",
    "diagnose": "spectrace.analysis.diagnosis",
    "open": "spectrace.format.reader",
}

__all__ = [
    "Comparison",
    "Counts",
    "Diagnosis",
    "Ragged",
    "RecorderError",
    "Request",
    "Run",
    "SpectraceError",
    "Step",
    "Tap",
    "Trace",
    "TraceError",
    "TraceWriter",
    "__version__",
    "compare",
    "diagnose",
    "open",
]


if not TYPE_CHECKING:  # a type checker knows the names by the imports above and reports any other

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'spectrace' has no attribute {name!r}")
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
