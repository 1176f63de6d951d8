"""A process that forks command lines and says what each cost; `test_hostile_commands.py` asks it.

Reads a JSON list of arguments a line and answers one JSON line: exit code, both streams, peak memory, time.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from spectrace.cli import main


def run(arguments: list[str], folder: Path) -> dict[str, Any]:
    """Runs one command line in a process of its own."""
    streams = [folder / "out", folder / "err"]
    child = os.fork()
    if child == 0:
        for number, path in enumerate(streams, 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        code = 99
        try:
            code = main(arguments)
        except BaseException:  # noqa: BLE001  whatever it is, the test must hear of it
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    _, status, usage = os.wait4(child, 0)
    out, err = (path.read_text(errors="surrogateescape") for path in streams)
    seconds = usage.ru_utime + usage.ru_stime
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "out": out, "err": err, "mib": usage.ru_maxrss / 1024, "seconds": seconds}


def serve() -> None:
    """Serves command lines until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryDirectory() as folder:
        answers.write("ready\n")
        answers.flush()
        for line in sys.stdin:
            answers.write(json.dumps(run(json.loads(line), Path(folder))) + "\n")
            answers.flush()


if __name__ == "__main__":
    serve()
