"""Faults beside the recording: signals, exits, other processes, other threads."""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import sys
import threading
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.reliability.host import FAULT_AT, Host, assisted, expected, target
from spectrace.errors import RecorderError


def nothing(host: Host) -> None:
    """The run that the others are compared with."""
    with host.record():
        host.generate()


# --- ends of the process ---


def sigkill(host: Host) -> None:
    """Killed between two steps, as by the kernel when memory runs out."""
    with host.record():
        host.generate({FAULT_AT: lambda: os.kill(os.getpid(), signal.SIGKILL)})


def sigkill_eagle3(host: Host) -> None:
    """The same, recorded by the reference decoder of EAGLE-3."""
    host.eagle3({FAULT_AT // 2: lambda: os.kill(os.getpid(), signal.SIGKILL)})


def sigterm(host: Host) -> None:
    """Ended by a service manager; Python does not clean up unless the host asks for it."""
    with host.record():
        host.generate({FAULT_AT: lambda: os.kill(os.getpid(), signal.SIGTERM)})


def ctrl_c(host: Host) -> None:
    """A person interrupts."""
    with host.record():
        host.generate({FAULT_AT: lambda: signal.raise_signal(signal.SIGINT)})


def os_exit(host: Host) -> None:
    """The host leaves without any cleaning up."""
    with host.record():
        host.generate({FAULT_AT: lambda: os._exit(3)})


def left_open(host: Host) -> None:
    """No `with`, and nobody closes."""
    host.record().__enter__()
    host.generate({FAULT_AT: sys.exit})


def raised(host: Host) -> None:
    """The host's own code fails in the middle of a call."""

    def fail() -> None:
        raise ZeroDivisionError

    with host.record():
        host.generate({FAULT_AT: fail})


# --- other processes and threads ---


class _Numbers(torch.utils.data.Dataset[int]):
    """Something to load."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


def _load_data() -> None:
    loader = DataLoader(_Numbers(), num_workers=2, multiprocessing_context="fork")
    assert sorted(int(item) for item in loader) == list(range(8))


def _fork_and_generate() -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if assisted(target()) == expected() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def forked(host: Host) -> None:
    """Data loader workers come and go, and a forked child generates with the same model."""
    with host.record():
        host.generate({FAULT_AT: _load_data, FAULT_AT + 5: _fork_and_generate})


def _generate_elsewhere(model: Any, output: Any) -> None:
    torch.set_num_threads(1)
    output.put(assisted(model))


def _spawn() -> None:
    context = multiprocessing.get_context("spawn")
    output = context.Queue()
    child = context.Process(target=_generate_elsewhere, args=(target(), output))
    child.start()
    found = output.get(timeout=300)
    child.join()
    assert found == expected()


def spawned(host: Host) -> None:
    """The model that is being recorded is sent to a process of its own, which generates with it."""
    with host.record():
        host.generate({FAULT_AT: _spawn})


def threads(host: Host) -> None:
    """One model, one recorder, four generations at the same time."""
    with host.record():
        running = [threading.Thread(target=host.generate) for _ in range(4)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()


def two_recorders(host: Host) -> None:
    """A second recorder, of another model, is given the file of the first."""
    other = copy.deepcopy(target())

    def begin() -> None:
        try:
            host.record(model=other).__enter__()
        except RecorderError as error:
            host.tell("refused", str(error))

    with host.record():
        host.generate({FAULT_AT: begin})
        assert assisted(other) == expected()
