"""Follows vLLM's V2 runner: `sample` verifies, the speculator's `propose` drafts for the next step.

Source: vLLM 0.32.0 v1/worker/gpu/model_runner.py and v1/worker/gpu/spec_decode. Its words end here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from spectrace_serving.clock import Moment, now
from spectrace_serving.outbox import Outbox
from spectrace_serving.rows import Taps
from spectrace_vllm.chain import add_target, add_tokens
from spectrace_vllm.recording import Recording

Wrapper = Callable[..., Any]


def follow(recording: Recording) -> None:
    """Wraps the functions of a live runner."""
    follower = _Follower(recording)
    engine = recording.engine
    recording.wrap(engine.runner, "execute_model", follower.execute_model)
    recording.wrap(engine.runner, "sample", follower.sample)
    if hasattr(engine.runner.model, "compute_logits"):
        recording.wrap(engine.runner.model, "compute_logits", follower.compute_logits)
    if hasattr(engine.drafter, "propose"):
        recording.wrap(engine.drafter, "propose", follower.propose)


class _Follower:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._speculator = recording.engine.drafter
        self._device = recording.engine.device
        self._started: Moment | None = None
        self._pack: Outbox | None = None
        self._row_ids: Tensor | None = None
        """[R] the token read in each row with logits."""

    # --- in place of the runner's functions ---

    def execute_model(self, original: Wrapper) -> Wrapper:
        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("dummy_run"):
                self._recording.guard("execute_model", self._began, scheduler_output)
            return original(scheduler_output, *args, **kwargs)

        return execute_model

    def sample(self, original: Wrapper) -> Wrapper:
        def sample(hidden_states: Any, input_batch: Any, *args: Any, **kwargs: Any) -> Any:
            guard = self._recording.guard
            guard("sample", self._sampling, input_batch)
            try:
                result = original(hidden_states, input_batch, *args, **kwargs)
            finally:
                pack, self._pack = self._pack, None
            if pack is not None:
                guard("sample", self._sampled, pack, input_batch, result)
            return result

        return sample

    def compute_logits(self, original: Wrapper) -> Wrapper:
        def compute_logits(*args: Any, **kwargs: Any) -> Any:
            logits = original(*args, **kwargs)
            if self._pack is not None:
                # At once: the grammar's mask and the samplers edit logits in place.
                self._recording.guard("compute_logits", self._computed, self._pack, logits)
            return logits

        return compute_logits

    def propose(self, original: Wrapper) -> Wrapper:
        def propose(input_batch: Any, *args: Any, **kwargs: Any) -> Any:
            guard = self._recording.guard
            began = None
            if not (kwargs.get("dummy_run") or kwargs.get("is_profile")):
                began = guard("propose", self._proposing, input_batch, args, kwargs)
            try:
                proposal = original(input_batch, *args, **kwargs)
            finally:
                self._recording.stops_proposing()
            if began is not None:
                guard("propose", self._proposed, input_batch, proposal, *began)
            return proposal

        return propose

    # --- what is seen ---

    def _began(self, scheduled: Any) -> None:
        self._started = None  # whatever is raised, nothing of the step before goes on
        self._recording.began(scheduled)
        self._started = now(self._device) if self._recording.is_active else None

    def _sampling(self, batch: Any) -> None:
        self._pack = None
        if self._started is None or not batch.num_reqs:
            return
        pack = self._recording.outbox()
        self._row_ids = add_tokens(pack, batch.input_ids, batch.positions, batch.logits_indices)
        pack.add("seq_lens", batch.seq_lens[: batch.num_reqs].clone())
        self._pack = pack

    def _computed(self, pack: Outbox, logits: Tensor) -> None:
        if self._row_ids is not None and logits.shape[0] == len(self._row_ids):
            workspace, is_full = self._recording.workspace, self._recording.is_full
            pack.reduce("target", add_target, workspace, pack.kept(logits), self._row_ids, is_full)

    def _sampled(self, pack: Outbox, batch: Any, result: Any) -> None:
        output, num_sampled, _ = result
        assert self._started is not None
        size = batch.num_reqs
        pack.add("sampled", output.sampled_token_ids[:size].clone())
        pack.add("num_sampled", num_sampled[:size].clone())
        self._recording.verified(
            list(batch.req_ids[:size]),
            np.diff(batch.cu_num_logits_np[: size + 1]).astype(np.int64),
            batch.num_scheduled_tokens[:size].astype(np.int64),
            None,
            self._started,
            pack,
        )

    def _proposing(
        self, batch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Moment, Outbox, Taps | None] | None:
        if self._started is None or not batch.num_reqs:
            return None
        size = batch.num_reqs
        pack = self._recording.outbox()
        states = args[3] if len(args) > 3 else kwargs["aux_hidden_states"]
        if not states and self._recording.engine.feeds_last_state:
            states = [args[2] if len(args) > 2 else kwargs["last_hidden_states"]]
        taps = self._recording.taps(
            pack,
            states,
            batch.positions,
            batch.query_start_loc_np[:size].astype(np.int64),
            batch.num_scheduled_tokens[:size].astype(np.int64),
            np.diff(batch.cu_num_logits_np[: size + 1]).astype(np.int64),
        )
        return self._recording.proposing(size, self._first_rows), pack, taps

    def _first_rows(self) -> Tensor | None:
        """Rows of the first forward from which a token is drafted: [max_num_reqs], the first B in use."""
        rows = getattr(self._speculator, "last_token_indices", None)
        return rows if isinstance(rows, Tensor) else None

    def _proposed(self, batch: Any, proposal: Any, started: Moment, pack: Outbox, taps: Taps | None) -> None:
        self._recording.proposed(list(batch.req_ids[: batch.num_reqs]), proposal, started, pack, taps)
