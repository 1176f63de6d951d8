"""A process that forks readers for hostile traces; `test_hostile.py` asks it.

Reads one path a line and answers one JSON line: what came out, peak memory and time. Each reader asks a
trace everything there is to ask, exports it, repairs it and asks the repaired one again.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import spectrace
from spectrace.errors import SpectraceError
from spectrace.format.fields import LEAVES
from spectrace.format.jsonl import export_lines
from spectrace.format.records import present_fields
from spectrace.format.repair import repair


def ask_everything(path: Path) -> dict[str, Any]:
    """Asks every question."""
    with spectrace.open(path) as trace:
        good = sum(step.request == "good" and step.step == 0 for step in islice(trace, 2))
        for step in trace:
            present_fields(step)
        for index in (*range(min(len(trace), 50)), len(trace) // 2, len(trace) - 1):
            if index in range(len(trace)):
                trace.steps.get(index)
        assert len(trace.steps[:]) <= len(trace)
        repr([trace.run, trace.run_mapping, trace.gaps, trace.references, trace.end, trace.counts])
        for request in islice(trace.requests, 1000):
            repr(request)
        trace.requests.get("nobody")
        trace.token_text(0)
        trace.token_text(0, draft=True)
        for leaf in LEAVES[::5]:
            trace.columns(leaf.path)
        for start in (0, len(trace) // 2, len(trace)):
            trace.find_rejected(start)
            trace.find_rejected(start, forward=False)
        assert len(trace.groups) >= 0
        trace.refresh()
        assert trace.state in ("closed", "unclosed")
        return {"good": good, "messages": trace.problems}


def rewrite(path: Path) -> dict[str, Any]:
    """Exports, repairs and asks again, and compacts."""
    with spectrace.open(path) as trace:
        lines = sum(1 for _ in export_lines(trace))
    out = path.with_suffix(".repaired")
    repair(path, out)
    repair(path, path.with_suffix(".compact"), compact=True)
    return {"good again": ask_everything(out)["good"], "lines": lines}


ERRANDS: tuple[Callable[[Path], dict[str, Any]], ...] = (ask_everything, rewrite)


def run(errand: Callable[[Path], dict[str, Any]], path: Path) -> dict[str, Any]:
    """Runs one errand in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            told = errand(path)
        except SpectraceError as error:
            told = {"refused": type(error).__name__, "messages": [str(error)]}
        except BaseException:  # noqa: BLE001  whatever it is, the test must hear of it
            told = {"crashed": traceback.format_exc()[-3000:]}
        with os.fdopen(writing, "w") as answer:
            answer.write(json.dumps(told))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    _, status, usage = os.wait4(child, 0)
    found: dict[str, Any] = json.loads(text) if text else {"crashed": f"status {status}"}
    seconds = usage.ru_utime + usage.ru_stime
    return {**found, "mib": usage.ru_maxrss / 1024, "seconds": seconds, "name": errand.__name__}


def main() -> None:
    """Serves paths until the input ends."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        path = Path(line.rstrip("\n"))
        sys.stdout.write(json.dumps([run(errand, path) for errand in ERRANDS]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
