"""One `generate` call: what it proposes, verifies and commits, step by step.

Wraps two methods of the candidate generator that the call made for itself. Their results, exceptions and
arguments pass through untouched; what is seen on the way is reduced and handed on. Never holds the
generator, nor logits beyond their step.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from spectrace_transformers.reduction import Pack, Workspace, num_nonfinite, reduce_logits
from spectrace_transformers.rows import Capture, Rules
from spectrace_transformers.taps import TapRows, take_rows

Arguments = tuple[Any, ...]
Named = Mapping[str, Any]


class Owner(Protocol):
    """What a session asks of its recorder."""

    top: int
    started_ns: int

    def guard(self, action: Callable[..., None], *args: Any) -> None:
        """Runs an action of the recorder's own; whatever it raises ends the recording only."""

    def verifying(self, session: Session | None) -> None:
        """Makes the target's hooks of this thread report to a session, or to none."""

    def workspace(self) -> Workspace:
        """Memory for this thread's reductions."""

    def captured(self, capture: Capture) -> None:
        """Hands on a step."""


class Session:
    """Follows one `generate` call.

    Args:
        owner: the recorder.
        request: name of the request.
        generator: the candidate generator of this call.
        rules: what ends a step.
        processed: whether logits processors run on the target's logits.
        prefix_length: tokens that the target's cache holds already.
    """

    def __init__(
        self,
        owner: Owner,
        request: str,
        generator: Any,
        rules: Rules,
        *,
        processed: bool,
        prefix_length: int | None,
    ) -> None:
        self._owner = owner
        self._request = request
        self._rules = rules
        self._processed = processed
        self._masked = processed or rules.raw_ids is not None
        self._prefix_length = prefix_length
        self._num_steps = 0
        # Strong references would make a cycle, and keep the draft's cache alive after the call.
        self._generator = weakref.ref(generator)
        self._get = _unbound(generator, "get_candidates")
        self._update = _unbound(generator, "update_candidate_strategy")
        generator.get_candidates = self.get_candidates
        generator.update_candidate_strategy = self.update_candidate_strategy
        self._forget()

    def _forget(self) -> None:
        """Lets go of everything that belongs to one step."""
        self._candidates: Tensor | None = None
        self._draft_logits: Tensor | None = None
        self._target_kv_length: int | None = None
        self._raw_nonfinite: Tensor | None = None
        self._taps: list[tuple[TapRows, Tensor]] = []

    # --- in place of the generator's methods ---

    def get_candidates(self, *args: Any, **kwargs: Any) -> Any:
        """Drafts, as the generator does."""
        self._owner.verifying(None)
        started = time.monotonic_ns()
        result = self._get(self._generator())(*args, **kwargs)
        self._owner.guard(self._proposed, started, result, args, kwargs)
        return result

    def update_candidate_strategy(self, *args: Any, **kwargs: Any) -> Any:
        """Tells the generator what was committed."""
        ended = time.monotonic_ns()
        result = self._update(self._generator())(*args, **kwargs)
        self._owner.verifying(None)
        self._owner.guard(self._committed, ended, args, kwargs)
        return result

    # --- what is seen on the way ---

    def _proposed(self, started: int, result: Any, args: Arguments, kwargs: Named) -> None:
        self._forget()
        self._started = started
        self._position = _argument(args, kwargs, 0, "input_ids").shape[1]
        self._candidates, self._draft_logits = result
        self._num_drafted = self._candidates.shape[1] - self._position
        self._draft_kv_length = self._kv_length_of_draft()
        self._owner.verifying(self)
        self._drafted = time.monotonic_ns()

    def saw_states(self, boundary: int, hidden: Tensor) -> None:
        """A layer of the target has run."""
        taken = take_rows(boundary, hidden, self._position - 1, self._num_drafted)
        if taken is not None:
            self._taps.append(taken)

    def saw_output(self, output: Any) -> None:
        """The target has run, and no processor has touched its logits yet."""
        self._owner.verifying(None)
        length = cache_length(output)
        if length is not None:
            self._target_kv_length = length - self._num_drafted
        if self._processed:
            logits = output.logits[0, -self._num_drafted - 1 :]  # [K+1, V]
            scratch = self._owner.workspace().rows("scratch", logits.shape, logits.device)
            self._raw_nonfinite = num_nonfinite(logits.float(), scratch)

    @torch.no_grad()
    def _committed(self, ended: int, args: Arguments, kwargs: Named) -> None:
        if self._candidates is None:
            return
        input_ids = _argument(args, kwargs, 0, "input_ids")  # [1, committed], this step's included
        scores = _argument(args, kwargs, 1, "scores")  # [1, K+1, V] after the processors
        reported = _argument(args, kwargs, 2, "num_matches")
        device = scores.device
        proposal = self._candidates[0, self._position :].to(device, torch.int64, copy=True)  # [K]
        draft_logits = None
        if self._draft_logits is not None and self._num_drafted:
            draft_logits = self._draft_logits[0]  # [K, V]
        pack = Pack(device)
        pack.add("proposal", proposal)
        pack.add("emitted", input_ids[0, self._position :].to(device, torch.int64, copy=True))
        scalars = self._scalars(ended)
        if isinstance(reported, Tensor):
            pack.add("reported", reported.to(device, torch.int64, copy=True).reshape(1))
        else:
            scalars["num_accepted_reported"] = reported
        if self._raw_nonfinite is not None:
            pack.add("raw_nonfinite", self._raw_nonfinite.to(device, torch.float32))
        workspace, top = self._owner.workspace(), self._owner.top
        reduce_logits(pack, workspace, proposal, scores[0], draft_logits, top, masked=self._masked)
        taps = [part for part, _ in self._taps]
        if taps:
            rows = [rows.to(device, torch.float32) for _, rows in self._taps]
            pack.add("taps", torch.cat(rows))  # [r, hidden_size]
        capture = Capture(
            rules=self._rules,
            scalars=scalars,
            arrays=pack.send(),
            taps=taps,
            flags=["prefill"] if self._num_steps == 0 else [],
            num_bytes=pack.num_bytes,
        )
        self._num_steps += 1
        self._forget()
        self._owner.captured(capture)

    def _scalars(self, ended: int) -> dict[str, Any]:
        fields = {
            "request": self._request,
            "step": self._num_steps,
            "position": self._position,
            "logits_kind": "processed" if self._processed else "raw",
            "draft_kv_length": self._draft_kv_length,
            "target_kv_length": self._target_kv_length,
            "prefix_hit_length": self._prefix_length if self._num_steps == 0 else None,
            "draft_ns": self._drafted - self._started,
            "verify_ns": ended - self._drafted,
            "step_ns": ended - self._started,
            "started_ns": self._started - self._owner.started_ns,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def _kv_length_of_draft(self) -> int | None:
        """Tokens in the draft's cache once the last committed token was fed, before its own tokens."""
        kwargs = getattr(self._generator(), "assistant_kwargs", None)
        if not self._num_drafted or not self._rules.has_draft_ids or kwargs is None:
            return None
        length = cache_length(kwargs)
        return None if length is None else length - (self._num_drafted - 1)


def _unbound(generator: Any, name: str) -> Callable[[Any], Callable[..., Any]]:
    """A way to a generator's method that does not hold the generator."""
    own = vars(generator).get(name)
    if own is not None:
        return lambda _generator: own
    return lambda generator: getattr(type(generator), name).__get__(generator)


def _argument(args: Arguments, kwargs: Named, index: int, name: str) -> Any:
    return args[index] if index < len(args) else kwargs[name]


def cache_length(holder: Mapping[str, Any]) -> int | None:
    """Tokens in the cache that a model's keywords or output hold, where asking costs nothing.

    The name of the key changed in 5.24. Caches other than the dynamic one would have to be searched.
    """
    for name in ("cache", "past_key_values"):
        cache = holder.get(name)
        if isinstance(cache, DynamicCache):
            length: Any = cache.get_seq_length()
            return length if isinstance(length, int) else None
    return None
