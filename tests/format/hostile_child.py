"""A process that forks readers for hostile traces; `test_hostile.py` asks it.

Reads one path a line and answers one JSON line: what came out, peak memory and time. Each reader asks a
trace everything there is to ask, exports it and repairs it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import spectrace
from spectrace.errors import SpectraceError
from spectrace.format.fields import LEAVES
from spectrace.format.jsonl import export_lines
from spectrace.format.records import present_fields
from spectrace.format.repair import repair


def ask_everything(trace: spectrace.Trace) -> int:
    """Asks every question; the number of steps of the request `good` at the beginning."""
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
    for leaf in LEAVES:
        trace.columns(leaf.path)
    for start in (0, len(trace) // 2, len(trace)):
        trace.find_rejected(start)
        trace.find_rejected(start, forward=False)
    assert len(trace.groups) >= 0
    trace.refresh()
    assert trace.state in ("closed", "unclosed")
    return good


def read(path: Path) -> dict[str, Any]:
    """What a reader says of a hostile file."""
    told: dict[str, Any] = {"outcome": "opened", "good": 0, "steps": 0, "messages": []}
    try:
        with spectrace.open(path) as trace:
            told["good"] = ask_everything(trace)
            told["steps"] = len(trace)
            for _ in export_lines(trace):
                pass
            told["messages"] = trace.problems
        for compact in (False, True):
            out = path.with_suffix(f".{compact}")
            repair(path, out, compact=compact)
            with spectrace.open(out) as trace:
                told[f"repaired {compact}"] = [ask_everything(trace), trace.problems]
    except SpectraceError as error:
        told |= {"outcome": "refused", "messages": [str(error)], "error": type(error).__name__}
    return told


def main() -> None:
    """Serves paths until the input ends."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        path = Path(line.rstrip("\n"))
        reading, writing = os.pipe()
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os.close(reading)
            with os.fdopen(writing, "w") as answer:
                answer.write(json.dumps(read(path)))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            told = answer.read()
        _, status, usage = os.wait4(child, 0)
        found = json.loads(told) if told else {"outcome": "crashed", "messages": []}
        found |= {"status": status, "mib": usage.ru_maxrss / 1024, "seconds": time.monotonic() - began}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
