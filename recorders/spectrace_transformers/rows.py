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
    num_bytes: int = 0
    """Size of `arrays`."""


def num_accepted(proposal: Array, emitted: Array) -> int:
    """Length of the common prefix: what of the proposal was committed.

    >>> num_accepted(np.array([5, 6, 7]), np.array([5, 6, 9])), num_accepted(np.array([5]), np.array([5]))
    (2, 1)
    """
    shared = min(len(proposal), len(emitted))
    differs = np.flatnonzero(proposal[:shared] != emitted[:shared])
    return int(differs[0]) if differs.size else shared


@dataclass(frozen=True, slots=True)
class _Arrived:
    """A step whose numbers have come from the device."""

    capture: Capture
    arrays: Mapping[str, Array]
    scalars: dict[str, Any]
    """Fields of one value, and `flags`."""

    def fits(self, other: _Arrived) -> bool:
        """Whether both have the same fields and the same rules, and so can be joined."""
        return (
            self.capture.rules is other.capture.rules
            and self.scalars.keys() == other.scalars.keys()
            and self.arrays.keys() == other.arrays.keys()
        )


def _arrived(capture: Capture) -> _Arrived:
    arrays = capture.arrays()
    scalars = dict(capture.scalars)
    if "reported" in arrays:
        scalars["num_accepted_reported"] = int(arrays["reported"][0])
    flags = capture.flags.copy()
    scalars.update(_decision(capture.rules, scalars["position"], arrays, flags))
    if flags:
        scalars["flags"] = flags
    return _Arrived(capture, arrays, scalars)


def _decision(rules: Rules, position: int, arrays: Mapping[str, Array], flags: list[str]) -> dict[str, Any]:
    """What was accepted, and why it ended there."""
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
    fields = {"num_accepted": accepted, "final_kind": final}
    if len(emitted) and int(emitted[-1]) in rules.eos_ids:
        fields["stop"] = "eos"
    elif rules.max_length is not None and position + len(emitted) >= rules.max_length:
        fields["stop"] = "length"
    return fields


# --- several steps at once -------------------------------------------------------------------------


def _joined(steps: Sequence[_Arrived]) -> dict[str, Any]:
    """Fields of steps that fit each other, as `TraceWriter.steps` takes them."""
    rules = steps[0].capture.rules
    arrays = {name: np.concatenate([s.arrays[name] for s in steps]) for name in steps[0].arrays}
    drafted = np.array([len(step.arrays["proposal"]) for step in steps])  # [B] K of each step
    emitted = np.array([len(step.arrays["emitted"]) for step in steps])  # [B]
    fields: dict[str, Any] = {name: [step.scalars[name] for step in steps] for name in steps[0].scalars}
    if "flags" in fields:
        fields["flags"] = _ragged(fields["flags"])
    fields["proposal_ids"] = (arrays["proposal"], drafted)
    fields["emitted_ids"] = (arrays["emitted"], emitted)
    if rules.has_draft_ids:
        fields["draft_ids"] = (_raw(rules, arrays["proposal"]), drafted)
    fields.update(_logit_fields(rules, arrays, drafted, emitted))
    if "taps" in arrays:
        fields.update(_tap_fields([step.capture.taps for step in steps], arrays["taps"]))
    return fields


def _logit_fields(
    rules: Rules, arrays: Mapping[str, Array], drafted: Array, emitted: Array
) -> dict[str, Any]:
    """What the target, and where it is known the draft, thought at each position."""
    has_draft = "mean" in arrays
    parts = np.stack((drafted + 1, drafted if has_draft else 0 * drafted), axis=1).ravel()
    of_target = np.repeat(np.tile([True, False], len(drafted)), parts)  # [R]
    ids = arrays["top_ids"]  # [R, m]
    top = _unmasked(arrays["top"])
    norm = log_normaliser(arrays["top"][:, :1], arrays["first"])  # [R, 1]
    logprobs = top - norm
    chosen = (_unmasked(arrays["chosen"]) - norm)[:, 0]  # [R]
    ends = np.cumsum(drafted + 1)
    has_proposal = np.ones(ends[-1], bool)  # [target rows]
    has_proposal[ends - 1] = False
    picks = ids[of_target, 0].copy()
    if rules.is_greedy:
        # Of two equal logits, the one the engine took.
        picks[_places(ends - drafted - 1, emitted)] = arrays["emitted"]
    bad = arrays.get("nonfinite", np.zeros(len(ids)))  # [R]
    fields = {
        "target_ids": (picks, drafted + 1),
        "target_logprobs": (chosen[of_target][has_proposal], drafted),
        "target_ranks": (arrays["better"] + 1, drafted),
        "target_gaps": (top[of_target, 0] - top[of_target, 1], drafted + 1),
        "target_top.id": (ids[of_target], drafted + 1),
        "target_top.logprob": (logprobs[of_target], drafted + 1),
        "nonfinite.target_logits": _sums(arrays.get("raw_nonfinite", bad[of_target]), drafted + 1),
    }
    if not has_draft:
        return fields
    return fields | {
        "draft_logprobs": (chosen[~of_target], drafted),
        # H = -sum q log q = log Z - sum q x
        "draft_entropy": (norm[~of_target, 0] - arrays["mean"], drafted),
        "draft_top.id": (_raw(rules, ids[~of_target]), drafted),
        "draft_top.logprob": (logprobs[~of_target], drafted),
        "nonfinite.draft_logits": _sums(bad[~of_target], drafted),
        "overlaps": (arrays["overlaps"], drafted),
    }


def _places(starts: Array, lengths: Array) -> Array:
    """The indices start, start + 1, .. of each stretch, one stretch after the other.

    >>> _places(np.array([0, 10]), np.array([2, 3])).tolist()
    [0, 1, 10, 11, 12]
    """
    before = np.cumsum(lengths) - lengths
    places: Array = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    return places


def _sums(values: Array, lengths: Array) -> Array:
    """The sum of each stretch, none of them empty, as integers.

    >>> _sums(np.array([1.0, 2.0, 3.0]), np.array([2, 1])).tolist()
    [3, 3]
    """
    return np.add.reduceat(values, np.cumsum(lengths) - lengths).astype(np.int64)


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


def _tap_fields(taps: Sequence[Sequence[TapRows]], rows: Array) -> dict[str, Any]:
    """Fingerprints of the rows [r, hidden_size] of several steps."""
    parts = [part for of_step in taps for part in of_step]
    counts = [len(part.positions) for part in parts]
    lengths = [sum(len(part.positions) for part in of_step) for of_step in taps]
    size = rows.shape[1]
    columns = {
        "dtype": [part.dtype for part, n in zip(parts, counts) for _ in range(n)],
        "boundary": np.repeat([part.boundary for part in parts], counts),
        "position": np.array([at for part in parts for at in part.positions]),
        "shape": np.repeat([part.shape for part in parts], counts, axis=0),
        "rms": np.sqrt(np.einsum("rh,rh->r", rows, rows) / np.float32(size)),
        "nonfinite": np.count_nonzero(~np.isfinite(rows), axis=1),
        "projections": rows @ _scaled_signs(size),
    }
    return {f"taps.{key}": (column, lengths) for key, column in columns.items()}


def _ragged(lists: Sequence[Sequence[Any]]) -> tuple[list[Any], list[int]]:
    return [item for values in lists for item in values], [len(values) for values in lists]


class Backlog:
    """Captured steps that the writer's thread has not yet taken.

    Steps taken together are joined into one set of arrays, so that their number costs that thread,
    and through the interpreter's lock the generation, little.
    """

    def __init__(self) -> None:
        self._waiting: deque[Capture] = deque()
        self._ready: deque[_Arrived] = deque()
        # Each is written by one side only.
        self._put_bytes = self._taken_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays of the steps that wait."""
        return self._put_bytes - self._taken_bytes

    def __len__(self) -> int:
        return len(self._waiting) + len(self._ready)

    def put(self, capture: Capture) -> None:
        """Adds a step; called on the generation's thread."""
        self._put_bytes += capture.num_bytes
        self._waiting.append(capture)

    def take(self) -> tuple[int, dict[str, Any]] | None:
        """The waiting steps that fit the first of them, as (number, arrays)."""
        while self._waiting:
            self._ready.append(_arrived(self._waiting.popleft()))
        if not self._ready:
            return None
        steps = [self._ready.popleft()]
        while self._ready and self._ready[0].fits(steps[0]):
            steps.append(self._ready.popleft())
        self._taken_bytes += sum(step.capture.num_bytes for step in steps)
        return len(steps), _joined(steps)
