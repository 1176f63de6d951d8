"""Looks at the draft model while it runs: its logits, positions and inputs, forward by forward.

The runner's function on the live object, and a forward hook on what fuses the target's states; silent but
where a round asks. A graph that is replayed does not pass here, and what was seen then is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from spectrace_serving.guard import Guard
from spectrace_serving.reduction import rms


@dataclass(slots=True)
class Seen:
    """Forwards of the draft in one part of a round."""

    logits: list[Tensor] = field(default_factory=list)
    """[rows, Dv]"""
    positions: list[Tensor] = field(default_factory=list)
    """[rows]"""
    inputs: list[Tensor] = field(default_factory=list)
    """[rows] RMS of the states read, after what fuses them."""


class DraftWatch:
    """Follows one draft model.

    Args:
        runner: SGLang's ModelRunner of the draft.
        guard: runs an action of ours; whatever it raises ends the recording of this part only.
        wrap: replaces a function on an object until the recording ends.
        is_fused: states of several boundaries are fused once, before the first forward: EAGLE-3.
        is_drawn: tokens are drawn from the logits, which whoever draws may change.
    """

    def __init__(
        self, runner: Any, guard: Guard, wrap: Callable[..., None], *, is_fused: bool, is_drawn: bool
    ) -> None:
        self._guard = guard
        self._is_drawn = is_drawn
        self._seen: Seen | None = None
        self._handle: Any = None
        wrap(runner, "forward", self._forward)
        self._width: int | None = None
        """Of the states that need no fusing."""
        fuser = getattr(getattr(runner.model, "model", None), "fc", None) if is_fused else None
        if isinstance(fuser, torch.nn.Module):
            self._width = getattr(fuser, "out_features", None)
            self._handle = fuser.register_forward_hook(self._fused)

    def remove(self) -> None:
        """Removes the hook; the runner's function is put back by whoever wrapped it."""
        if self._handle is not None:
            self._handle.remove()

    def begin(self) -> None:
        """From here on the draft is looked at."""
        self._seen = Seen()

    def end(self) -> Seen | None:
        """What was seen since `begin`; None where that was not called."""
        seen, self._seen = self._seen, None
        return seen

    # --- hooks ---

    def _forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            if self._seen is None:
                return original(forward_batch, *args, **kwargs)
            self._guard("draft inputs", self._note, self._seen, forward_batch)
            output = original(forward_batch, *args, **kwargs)
            self._guard("draft logits", self._said, self._seen, output)
            return output

        return forward

    def _note(self, seen: Seen, forward_batch: Any) -> None:
        # SGLang adds to the positions in place.
        seen.positions.append(forward_batch.positions.to(torch.int64, copy=True))
        states = getattr(forward_batch.spec_info, "hidden_states", None)
        if isinstance(states, Tensor) and self._width in (None, states.shape[1]):
            self._read(seen, states)

    def _said(self, seen: Seen, output: Any) -> None:
        logits = output.logits_output.next_token_logits
        seen.logits.append(logits.clone() if self._is_drawn else logits)

    def _fused(self, _module: Any, _args: Any, output: Any) -> None:
        if self._seen is not None and isinstance(output, Tensor):
            self._guard("draft inputs", self._read, self._seen, output)

    def _read(self, seen: Seen, states: Tensor) -> None:
        # At once: the draft's norms add to their input in place.
        seen.inputs.append(rms(states.float()))
