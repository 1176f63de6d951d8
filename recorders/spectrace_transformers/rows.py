"""Captured steps -> arrays for the writer, on the writer's thread.

Here the numbers that came from the device become the fields of a step: what was accepted is counted from
the ids, whatever the engine says. numpy only, no loop over positions. Refuses to touch a tensor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from spectrace.format.projections import sign_matrix
from spectrace_transformers.reduction import LOWEST, log_normaliser
from spectrace_transformers.taps import TapRows

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides within one generate call how a step ends."""

    is_greedy: bool
    is_rejection_sampling: bool
    eos_ids: frozenset[int]
    max_length: int | None
    raw_ids: Array | None
    """[target vocab] draft id of each target id, -1 for none; None where both are the same."""
    has_draft_ids: bool
    """False where the draft's own tokens do not line up with the proposal."""


@dataclass(frozen=True, slots=True)
class Capture:
    """One step as it leaves the generation thread."""

    rules: Rules
    scalars: dict[str, Any]
    """Fields known already; `num_accepted_reported` may be on its way in `arrays`."""
    arrays: Callable[[], Mapping[str, Array]]
    """Waits for the device."""
    taps: Sequence[TapRows] = ()
    """What the rows in `arrays` under "taps" are, in their order."""
    flags: list[str] = field(default_factory=list)


def step_fields(capture: Capture) -> dict[str, Any]:
    """Fields of one step, lists as arrays, by the paths `TraceWriter.steps` takes."""
    arrays = capture.arrays()
    fields = dict(capture.scalars)
    flags = capture.flags.copy()
    if "reported" in arrays:
        fields["num_accepted_reported"] = int(arrays["reported"])
    fields.update(_decision(capture.rules, fields["position"], arrays, flags))
    fields.update(_logit_fields(capture.rules, arrays))
    if capture.rules.has_draft_ids:
        fields["draft_ids"] = _raw(capture.rules, arrays["proposal"])
    if capture.taps:
        fields.update(_tap_fields(capture.taps, arrays["taps"]))
    if flags:
        fields["flags"] = flags
    return fields


def num_accepted(proposal: Array, emitted: Array) -> int:
    """Length of the common prefix: what of the proposal was committed.

    >>> num_accepted(np.array([5, 6, 7]), np.array([5, 6, 9])), num_accepted(np.array([5]), np.array([5]))
    (2, 1)
    """
    shared = min(len(proposal), len(emitted))
    differs = np.flatnonzero(proposal[:shared] != emitted[:shared])
    return int(differs[0]) if differs.size else shared


def _decision(rules: Rules, position: int, arrays: Mapping[str, Array], flags: list[str]) -> dict[str, Any]:
    """What was proposed, accepted and committed, and why it ended there."""
    proposal, emitted = arrays["proposal"], arrays["emitted"]
    accepted = num_accepted(proposal, emitted)
    final = "recovered" if rules.is_rejection_sampling else "corrected"
    if not len(proposal) or not len(emitted):
        final = "none"
    elif accepted == len(emitted):
        # The end of the text or the length limit came before the target's own token.
        final = "draft"
        flags.append("truncated")
    elif accepted == len(proposal):
        final = "bonus"
    fields = {
        "proposal_ids": proposal,
        "emitted_ids": emitted,
        "num_accepted": accepted,
        "final_kind": final,
    }
    if len(emitted) and int(emitted[-1]) in rules.eos_ids:
        fields["stop"] = "eos"
    elif rules.max_length is not None and position + len(emitted) >= rules.max_length:
        fields["stop"] = "length"
    return fields


def _logit_fields(rules: Rules, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """What the target, and where it is known the draft, thought at each position."""
    num_drafted = len(arrays["proposal"])
    top, first = _unmasked(arrays["top"]), arrays["first"]  # [R, m], [R, 1]
    norm = log_normaliser(arrays["top"][:, :1], first)  # [R, 1]
    chosen = (_unmasked(arrays["chosen"]) - norm)[:, 0]  # [R]
    logprobs = top - norm
    ids = arrays["top_ids"]
    target, draft = slice(0, num_drafted + 1), slice(num_drafted + 1, None)
    picks = ids[target, 0].copy()
    if rules.is_greedy:
        # Of two equal logits, the one the engine took.
        picks[: len(arrays["emitted"])] = arrays["emitted"]
    fields = {
        "target_ids": picks,
        "target_logprobs": chosen[:num_drafted],
        "target_ranks": arrays["better"] + 1,
        "target_gaps": top[target, 0] - top[target, 1],
        "target_top.id": ids[target],
        "target_top.logprob": logprobs[target],
        "nonfinite.target_logits": int(arrays.get("raw_nonfinite", arrays["nonfinite"][target]).sum()),
    }
    if "mean" not in arrays:
        return fields
    return fields | {
        "draft_logprobs": chosen[draft],
        # H = -sum q log q = log Z - sum q x
        "draft_entropy": norm[draft, 0] - arrays["mean"],
        "draft_top.id": _raw(rules, ids[draft]),
        "draft_top.logprob": logprobs[draft],
        "nonfinite.draft_logits": int(arrays["nonfinite"][draft].sum()),
        "overlaps": arrays["overlaps"],
    }


def _unmasked(logits: Array) -> Array:
    return np.where(logits == LOWEST, -np.inf, logits)


def _raw(rules: Rules, target_ids: Array) -> Array:
    if rules.raw_ids is None:
        return target_ids
    raw: Array = rules.raw_ids[target_ids]
    return raw


@lru_cache(maxsize=8)
def _scaled_signs(hidden_size: int) -> Array:
    """Signs / sqrt(hidden_size), as `spectrace.format.projections.project` multiplies by."""
    scaled: Array = sign_matrix(hidden_size) / np.float32(np.sqrt(hidden_size))
    return scaled


def _tap_fields(taps: Sequence[TapRows], rows: Array) -> dict[str, Any]:
    counts = [len(part.positions) for part in taps]
    size = rows.shape[1]
    return {
        "taps.dtype": [part.dtype for part, n in zip(taps, counts) for _ in range(n)],
        "taps.boundary": np.repeat([part.boundary for part in taps], counts),
        "taps.position": np.concatenate([part.positions for part in taps]),
        "taps.shape": np.repeat([part.shape for part in taps], counts, axis=0),
        "taps.rms": np.sqrt(np.einsum("rh,rh->r", rows, rows) / np.float32(size)),
        "taps.nonfinite": np.count_nonzero(~np.isfinite(rows), axis=1),
        "taps.projections": rows @ _scaled_signs(size),
    }


class Backlog:
    """Captured steps that the writer's thread has not yet taken.

    Steps taken together are joined into one set of arrays, so that their number costs that thread,
    and through the interpreter's lock the generation, next to nothing.
    """

    def __init__(self) -> None:
        self._waiting: deque[Capture] = deque()
        self._ready: deque[dict[str, Any]] = deque()

    def put(self, capture: Capture) -> None:
        """Adds a step; called on the generation's thread."""
        self._waiting.append(capture)

    def take(self) -> tuple[int, dict[str, Any]] | None:
        """All waiting steps that have the same fields as the first, as (number, arrays)."""
        while self._waiting:
            self._ready.append(step_fields(self._waiting.popleft()))
        if not self._ready:
            return None
        run = [self._ready.popleft()]
        while self._ready and self._ready[0].keys() == run[0].keys():
            run.append(self._ready.popleft())
        return len(run), {path: _joined([fields[path] for fields in run]) for path in run[0]}


def _joined(values: list[Any]) -> Any:
    """One column from the values of several steps: lists as (flat, lengths)."""
    first = values[0]
    if isinstance(first, np.ndarray):
        flat = first if len(values) == 1 else np.concatenate(values)
        return flat, [len(value) for value in values]
    if isinstance(first, list):
        return [item for value in values for item in value], [len(value) for value in values]
    return values
