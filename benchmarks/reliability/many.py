"""No fault but a great many, by the writer alone, as no model here is so fast."""

from __future__ import annotations

import numpy as np

from benchmarks.reliability.host import Host
from spectrace.format.writer import TraceWriter
from spectrace.testing import step_fields

STEPS_EACH = 3
_AT_ONCE = 1000


def requests(host: Host, count: int = 100_000) -> None:
    """Short requests, each described and over behind three steps."""
    with TraceWriter(host.path, {}, strict=True) as writer:
        for number in range(count):
            name = f"r{number}"
            writer.request(name, prompt_ids=[number, number + 1])
            for step in range(STEPS_EACH):
                writer.step(step_fields(request=name, step=step))
            if number % _AT_ONCE == 0:
                writer.flush()  # no engine is faster than the writing thread
    host.tell("given", count * STEPS_EACH)


def steps(host: Host, count: int = 1_000_000) -> None:
    """One request that does not end."""
    zeros = np.zeros(_AT_ONCE, int)
    with TraceWriter(host.path, {}, strict=True) as writer:
        for first in range(0, count, _AT_ONCE):
            number = np.arange(first, first + _AT_ONCE)
            writer.steps(
                _AT_ONCE,
                {
                    "request": ["r0"] * _AT_ONCE,
                    "step": number,
                    "position": number,
                    "proposal_ids": np.zeros((_AT_ONCE, 3), int),
                    "num_accepted": zeros,
                    "emitted_ids": zeros[:, None],
                },
            )
            writer.flush()
    host.tell("given", count)
