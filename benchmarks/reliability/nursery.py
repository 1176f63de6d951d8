"""A process that loads the models once and forks one host for each fault.

Reads one job a line, `FAULT FOLDER`, and says `pid N` and then `ended STATUS`. Starting torch for each would
take most of the time.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from benchmarks.reliability.faults import FAULTS
from benchmarks.reliability.host import ERRORS, Host, expected


class _Warnings(logging.Handler):
    """Tells what spectrace logs."""

    def __init__(self, host: Host) -> None:
        super().__init__(logging.WARNING)
        self._host = host

    def emit(self, record: logging.LogRecord) -> None:
        """Takes one."""
        self._host.tell("warning", record.getMessage())


def serve() -> None:
    """Forks a host for every job until the input ends."""
    transformers_logging.set_verbosity_error()
    torch.set_num_threads(1)
    _say(f"ready {json.dumps(expected())}")
    for job in sys.stdin:
        name, _, folder = job.rstrip("\n").partition(" ")
        fault = next(fault for fault in FAULTS if fault.name == name)
        child = os.fork()
        if child == 0:
            _be_host(fault.act, Path(folder))
            return  # an end as any program has: what is registered for it runs
        _say(f"pid {child}")
        _say(f"ended {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")


def _be_host(act: Callable[[Host], None], folder: Path) -> None:
    errors = os.open(folder / ERRORS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, fd in ((0, nothing), (1, nothing), (2, errors)):
        os.dup2(fd, number)
    host = Host(folder)
    logging.getLogger("spectrace").addHandler(_Warnings(host))
    try:
        act(host)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001  whatever ends it is told
        host.tell("raised", type(error).__name__)
        traceback.print_exc()
        sys.exit(1)


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    serve()
