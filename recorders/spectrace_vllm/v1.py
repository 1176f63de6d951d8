"""Follows vLLM's V1 runner: `_sample` verifies, `propose_draft_token_ids` drafts for the next step.

Source: vLLM 0.32.0 v1/worker/gpu_model_runner.py. Its words end here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from spectrace_serving.clock import Moment, now
from spectrace_serving.outbox import Outbox
from spectrace_serving.rows import Taps
from spectrace_transformers.reduction import Array
from spectrace_vllm.chain import add_target, add_tokens
from spectrace_vllm.recording import Recording

Wrapper = Callable[..., Any]


def follow(recording: Recording) -> None:
    """Wraps the functions of a live runner."""
    follower = _Follower(recording)
    runner, drafter = recording.engine.runner, recording.engine.drafter
    recording.wrap(runner, "execute_model", follower.execute_model)
    recording.wrap(runner, "_sample", follower.sample)
    if drafter is not None and hasattr(runner, "propose_draft_token_ids"):
        recording.wrap(runner, "propose_draft_token_ids", follower.propose)
    if recording.engine.draft is not None and hasattr(drafter, "set_inputs_first_pass"):
        recording.wrap(drafter, "set_inputs_first_pass", follower.first_pass)


class _Follower:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._runner = recording.engine.runner
        self._device = recording.engine.device
        self._started: Moment | None = None
        self._first_rows: Tensor | None = None
        self._scheduled: dict[str, int] = {}
        self._batch: _Batch | None = None

    # --- in place of the runner's functions ---

    def execute_model(self, original: Wrapper) -> Wrapper:
        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            self._recording.guard("execute_model", self._began, scheduler_output)
            return original(scheduler_output, *args, **kwargs)

        return execute_model

    def sample(self, original: Wrapper) -> Wrapper:
        def _sample(logits: Any, spec_decode_metadata: Any, *args: Any, **kwargs: Any) -> Any:
            guard = self._recording.guard
            # Before: samplers edit logits in place.
            pack = guard("_sample", self._verifying, logits, spec_decode_metadata)
            output = original(logits, spec_decode_metadata, *args, **kwargs)
            if pack is not None:
                guard("_sample", self._verified, pack, output)
            return output

        return _sample

    def propose(self, original: Wrapper) -> Wrapper:
        def propose_draft_token_ids(*args: Any, **kwargs: Any) -> Any:
            guard = self._recording.guard
            began = guard("propose_draft_token_ids", self._proposing, args, kwargs)
            try:
                proposal = original(*args, **kwargs)
            finally:
                self._recording.stops_proposing()
            if began is not None:
                guard("propose_draft_token_ids", self._proposed, proposal, *began)
            return proposal

        return propose_draft_token_ids

    def first_pass(self, original: Wrapper) -> Wrapper:
        def set_inputs_first_pass(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._recording.guard("set_inputs_first_pass", self._note_rows, result)
            return result

        return set_inputs_first_pass

    # --- what is seen ---

    def _began(self, scheduled: Any) -> None:
        self._batch = self._started = None  # whatever is raised, nothing of the step before goes on
        self._recording.began(scheduled)
        self._scheduled = scheduled.num_scheduled_tokens
        self._started = now(self._device) if self._recording.is_active else None

    def _verifying(self, logits: Tensor | None, metadata: Any) -> Outbox | None:
        if self._started is None or logits is None:
            return None
        runner = self._runner
        requests = list(runner.input_batch.req_ids)
        size = len(requests)
        if metadata is None:
            counts = np.ones(size, np.int64)
            at = runner.query_start_loc.gpu[1 : size + 1] - 1  # [B]
        else:
            counts = np.array(metadata.num_draft_tokens, np.int64) + 1
            at = metadata.logits_indices  # [R]
        pack = self._recording.outbox()
        row_ids = add_tokens(pack, runner.input_ids.gpu, runner.positions, at)
        workspace, is_full = self._recording.workspace, self._recording.is_full
        pack.reduce("target", add_target, workspace, pack.kept(logits), row_ids, is_full)
        pack.add("seq_lens", runner.seq_lens[:size].clone())
        self._batch = _Batch(
            requests=requests,
            counts=counts,
            num_scheduled=np.array([self._scheduled[name] for name in requests], np.int64),
            starts=runner.query_start_loc.np[:size].astype(np.int64),
            discarded=runner.discard_request_mask.np[:size].copy(),
        )
        return pack

    def _verified(self, pack: Outbox, output: Any) -> None:
        batch = self._batch
        assert batch is not None
        assert self._started is not None
        pack.add("sampled", output.sampled_token_ids.clone())
        self._recording.verified(
            batch.requests, batch.counts, batch.num_scheduled, batch.discarded, self._started, pack
        )

    def _proposing(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Moment, Outbox, Taps | None] | None:
        batch = self._batch
        if batch is None:
            return None
        pack = self._recording.outbox()
        states = args[5] if len(args) > 5 else kwargs["aux_hidden_states"]
        if states is None and self._recording.engine.feeds_last_state:
            states = [args[3] if len(args) > 3 else kwargs["hidden_states"]]
        taps = self._recording.taps(
            pack, states, self._runner.positions, batch.starts, batch.num_scheduled, batch.counts
        )
        self._first_rows = None
        return self._recording.proposing(len(batch.requests), lambda: self._first_rows), pack, taps

    def _note_rows(self, result: Any) -> None:
        """Rows of the first forward from which a token is drafted: [B]; not those of parallel drafting."""
        rows, batch = result[1], self._batch
        self._first_rows = rows if batch is not None and len(rows) == len(batch.requests) else None

    def _proposed(self, proposal: Any, started: Moment, pack: Outbox, taps: Taps | None) -> None:
        batch, self._batch = self._batch, None
        assert batch is not None
        self._recording.proposed(batch.requests, proposal, started, pack, taps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """A batch between its verification and the next proposal."""

    requests: list[str]
    counts: Array
    """[B] rows with logits."""
    num_scheduled: Array
    """[B] tokens read."""
    starts: Array
    """[B] first token of each request."""
    discarded: Array
    """[B] the sample is thrown away."""
