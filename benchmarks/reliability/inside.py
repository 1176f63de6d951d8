"""Faults inside the recorder: code of its own that fails, clocks, devices, compiled models."""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch

from benchmarks.reliability.host import FAULT_AT, Host, draft, target
from spectrace.format import packer
from spectrace_eagle3 import recorder as eagle3_recorder
from spectrace_transformers import session
from spectrace_transformers.reduction import Pack


def _fail(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("injected")


def clock(host: Host) -> None:
    """Every look at a clock gives an earlier time than the one before."""
    start, looks = time.monotonic_ns(), itertools.count()

    def earlier() -> int:
        return start - next(looks) * 1_000_000

    time.monotonic_ns = earlier
    time.time = lambda: earlier() / 1e9
    with host.record():
        host.generate()


def hook(host: Host) -> None:
    """What reduces the logits breaks."""
    with host.record():
        host.generate({FAULT_AT: lambda: setattr(session, "reduce_logits", _fail)})


def hook_eagle3(host: Host) -> None:
    """What makes a step of a round breaks, in the reference decoder's recorder."""
    host.eagle3({FAULT_AT // 2: lambda: setattr(eagle3_recorder, "step_fields", _fail)})


_ENCODE = "encode_steps"
"""What packs steps, in the writer's module."""


def memory(host: Host) -> None:
    """No memory for packing what waits, for a while."""
    encode = getattr(packer, _ENCODE)

    def no_memory(*_: Any, **__: Any) -> Any:
        raise MemoryError

    def enough() -> None:
        time.sleep(0.3)
        setattr(packer, _ENCODE, encode)

    with host.record():
        host.generate({FAULT_AT: lambda: setattr(packer, _ENCODE, no_memory), FAULT_AT + 10: enough})


def device(host: Host) -> None:
    """Results travel packed, as from a device that is no CPU: there is none here."""
    Pack.send = Pack.send_packed  # type: ignore[method-assign]
    with host.record():
        host.generate()


def meta(host: Host) -> None:
    """A draft without values: `generate` cannot work, and says so with and without a recorder."""
    nowhere = draft().to("meta")
    try:
        host.generate(assistant_model=nowhere)
    except Exception as error:  # noqa: BLE001  whatever it is
        expected = type(error)
    with host.record():
        try:
            host.generate(assistant_model=nowhere)
        except expected:
            host.tell("raised", "the same exception")
            raise SystemExit(1) from None


def compiled(host: Host) -> None:
    """The target's forward is compiled in place, as a host does for speed."""
    target().forward = torch.compile(target().forward, backend="eager", dynamic=True)
    with host.record():
        host.generate()
