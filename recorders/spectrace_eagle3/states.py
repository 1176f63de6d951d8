"""Raw states that the draft was fed, of a run's first steps, in a safetensors file beside the trace.

One tensor per request, called by its name: [taps, tokens, hidden_size], from the prompt's first token on, in
the order of fc's input and the dtype of the run. Held in memory until the recording ends.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from spectrace.checkpoint.tensorfile import SafetensorsFile
from spectrace.errors import CheckpointError

logger = logging.getLogger("spectrace")

LIMIT = 256 << 20
"""Most bytes of states that are kept; the capture ends with the last step that fits."""


def states_path(trace: Path) -> Path:
    """Where the states of a trace lie.

    >>> states_path(Path("run.spectrace")).name
    'run.spectrace.states.safetensors'
    """
    return trace.with_name(f"{trace.name}.states.safetensors")


class StateCapture:
    """Collects states and writes them at the end.

    Args:
        trace: the trace that is being recorded.
        num_steps: steps whose states are kept, over all requests.
        boundaries: k of B(k) that each tap is declared to be.
        created: of the trace's header.
    """

    def __init__(self, trace: Path, num_steps: int, boundaries: Sequence[int], created: str) -> None:
        self._path = states_path(trace)
        self._left = num_steps
        self._free = LIMIT
        self._metadata = {"created": created, "boundaries": json.dumps(list(boundaries))}
        self._states: dict[str, list[Tensor]] = {}

    def add(self, request: str, taps: Tensor) -> None:
        """Keeps the states of one step, [taps, n, hidden_size], until enough are kept."""
        size = taps.numel() * taps.element_size()
        if self._left > 0 and size > self._free:
            logger.warning("raw states end %s steps early: no more than %s bytes are kept", self._left, LIMIT)
            self._left = 0
        if self._left <= 0:
            return
        self._left -= 1
        self._free -= size
        self._states.setdefault(request, []).append(taps.detach().cpu())

    def close(self) -> None:
        """Writes the file, whole or not at all; none where no states were asked for."""
        if not self._states:
            return
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        tensors = {name: torch.cat(parts, dim=1).contiguous() for name, parts in self._states.items()}
        try:
            save_file(tensors, partial, metadata=self._metadata)
            partial.replace(self._path)
        finally:
            partial.unlink(missing_ok=True)


def read_states(trace: Path, created: str | None) -> dict[str, Tensor]:
    """States of a trace by request; none where no file of states lies beside it.

    Args:
        trace: the trace.
        created: of its header.

    Raises:
        CheckpointError: the file is damaged, or belongs to another recording.
    """
    path = states_path(trace)
    if not path.exists():
        return {}
    for fault in SafetensorsFile(path, path.name).faults:
        raise CheckpointError(path, fault.what, fault.tensor)
    with safe_open(path, "pt") as opened:
        metadata = opened.metadata() or {}
        if metadata.get("created") != created:
            raise CheckpointError(path, "belongs to another recording than this trace; move it away")
        states = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  no mapping
    for name, tensor in states.items():
        if tensor.ndim != 3 or not tensor.is_floating_point():
            raise CheckpointError(path, "holds no states [taps, tokens, hidden_size]", name)
    return states


@torch.no_grad()
def nearest_boundaries(fed: Tensor, truth: Tensor, norm: Callable[[Tensor], Tensor]) -> list[dict[str, Any]]:
    """For each tap the boundary that it is, as it stands or after the target's final norm.

    Args:
        fed: [taps, tokens, hidden_size] states that the draft was fed.
        truth: [n + 1, tokens, hidden_size] the target's own at all boundaries, same tokens.
        norm: the target's final norm.

    Returns:
        Per tap {boundary, normed, distance}: RMS of the difference over RMS of what it is nearest to.
    """
    normed = norm(truth)
    found = []
    for states in fed.float():
        candidates = [
            {"boundary": k, "normed": is_normed, "distance": _distance(states, there[k].float())}
            for is_normed, there in ((False, truth), (True, normed))
            for k in range(len(truth))
        ]
        found.append(min(candidates, key=lambda candidate: candidate["distance"]))
    return found


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm().clamp(min=1e-30))
