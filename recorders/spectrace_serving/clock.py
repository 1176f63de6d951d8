"""Moments of a run: the host's clock on a CPU, marks in the device's stream on a GPU.

On a GPU the host runs ahead of the device, so its clock says nothing about what took how long.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Moment:
    """One point of a run."""

    host_ns: int
    """Monotonic clock of the host."""
    mark: Any = None
    """CUDA event, where the device has its own clock."""

    def until(self, later: Moment) -> int:
        """Nanoseconds to a later moment; on a GPU only once both marks are passed."""
        if self.mark is None or later.mark is None:
            return later.host_ns - self.host_ns
        return int(self.mark.elapsed_time(later.mark) * 1e6)


def now(device: torch.device) -> Moment:
    """This moment; waits for nothing."""
    mark = None
    if device.type == "cuda":
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
    return Moment(time.monotonic_ns(), mark)
