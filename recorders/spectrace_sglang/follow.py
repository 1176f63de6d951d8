"""Follows SGLang's rounds: the draft proposes, the target verifies, the draft reads on and seeds the next.

Source: SGLang 0.5.23 srt/speculative/eagle_worker_v2.py, eagle_worker_common.py and eagle_utils.py. Its words
end here. The methods are named after the functions that they stand in for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spectrace_serving.clock import Moment, now
from spectrace_serving.outbox import Outbox
from spectrace_serving.reduction import kept_rows, on_device, rms
from spectrace_serving.rows import Taps
from spectrace_sglang.captures import Drafted, Seeded, Verified
from spectrace_sglang.tree import add_nodes, add_seed, add_target, parents_of
from spectrace_sglang.watch import DraftWatch, Seen
from spectrace_transformers.reduction import Array

if TYPE_CHECKING:
    from spectrace_sglang.recording import Recording

Original = Callable[..., Any]


class Follower:
    """Stands in for the hooked functions of one scheduler.

    Args:
        recording: is told what happens.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._device = recording.engine.device
        self._is_on = True
        self._watch: DraftWatch | None = None
        self._drafted: Drafted | None = None
        self._is_proposing = self._has_grown = False
        self._nodes: Callable[[], Mapping[str, Array]] | None = None
        """The draft's own values in this round."""
        self._prompt: Outbox | None = None
        runner = recording.engine.draft_runner
        if runner is not None:
            self._watch = DraftWatch(runner, recording.guard, recording.wrap)
        recording.wrap(recording.engine.target_runner, "sample", self._sample)

    def stop(self) -> None:
        """From here on the engine runs as if nothing were there."""
        self._is_on = False
        if self._watch is not None:
            self._watch.remove()

    # --- the draft proposes ---

    def draft(self, original: Original, worker: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """EagleDraftWorker.draft: a proposal for each request."""
        guard = self._recording.guard
        started = guard("draft", self._proposing, batch) if self._is_on else None
        result = original(worker, batch, *args, **kwargs)
        if started is not None:
            guard("draft", self._proposed, started)
        return result

    def draft_forward(
        self, original: Original, worker: Any, forward_batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """EagleDraftWorker.draft_forward: its forwards one by one; in a graph this is not called."""
        watch, guard = self._watch, self._recording.guard
        if watch is None or not self._is_proposing:
            return original(worker, forward_batch, *args, **kwargs)
        watch.begin()
        result = original(worker, forward_batch, *args, **kwargs)
        self._has_grown = True
        guard("draft_forward", self._grown, watch.end(), result)
        return result

    def _proposing(self, batch: Any) -> Moment | None:
        self._drafted = self._nodes = None
        self._has_grown = False
        self._is_proposing = not batch.forward_mode.is_idle() and self._recording.follows(batch.reqs)
        return now(self._device) if self._is_proposing else None

    def _grown(self, seen: Seen | None, result: Any) -> None:
        """Adds the nodes of a proposal that grew before the hooks' eyes."""
        score_index, mapped = result[1], result[2]
        if seen is None or score_index is None:
            return
        recording, pack = self._recording, self._recording.outbox()
        pack.reduce(
            "draft", add_nodes, recording.workspace, seen.logits, score_index.long().clone(),
            mapped.long().clone(), recording.raw_of, recording.engine.topk, recording.engine.is_drawn,
            recording.is_full,
        )  # fmt: skip
        if seen.positions and recording.is_full:
            pack.add("row_positions", torch.stack(seen.positions))  # [steps - 1, B * topk]
        if len(seen.states) == len(seen.positions) > 0 and recording.is_full:
            pack.add("row_rms", rms(torch.stack(seen.states).float()))  # [steps - 1, B * topk]
        self._nodes = pack.send()

    def _proposed(self, started: Moment) -> None:
        self._is_proposing = False
        if not self._has_grown:
            self._recording.tell_graph()
        self._drafted = Drafted(
            started=started, ended=now(self._device), arrays=self._nodes, topk=self._recording.engine.topk
        )

    # --- the target verifies ---

    def eagle_sample(
        self, original: Original, verify_input: Any, batch: Any, logits_output: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """eagle_sample: decides what is accepted; every method passes here."""
        guard = self._recording.guard
        pack = None
        if self._is_on:
            # Before: penalties and masks are added to the logits in place.
            pack = guard("eagle_sample", self._verifying, verify_input, batch, logits_output)
        result = original(verify_input, batch, logits_output, *args, **kwargs)
        if pack is not None:
            guard("eagle_sample", self._verified, verify_input, batch, result, *pack)
        return result

    def _verifying(self, verify_input: Any, batch: Any, output: Any) -> tuple[Outbox, Taps | None] | None:
        if batch.forward_mode.is_idle() or not self._recording.begins(batch.reqs):
            self._drafted = None
            return None
        recording, pack = self._recording, self._recording.outbox()
        size, n = len(batch.reqs), int(verify_input.draft_token_num)
        ids = verify_input.draft_token[: size * n].view(size, n).to(torch.int64, copy=True)
        parents = parents_of(
            verify_input.retrieve_next_token[:size], verify_input.retrieve_next_sibling[:size]
        )
        positions = verify_input.positions[: size * n].view(size, n).to(torch.int64, copy=True)
        pack.add("ids", ids)
        pack.add("parents", parents)
        pack.add("positions", positions)
        pack.add("seq_lens", batch.seq_lens[:size].to(torch.int64, copy=True))
        logits = pack.kept(output.next_token_logits[: size * n])
        pack.reduce("target", add_target, recording.workspace, logits, ids, parents, recording.is_full)
        roots = np.arange(size) * n
        taps = recording.guard(
            "taps", self._taps, pack, output.hidden_states, positions[:, 0], roots, np.ones_like(roots)
        )
        return pack, taps

    def _verified(self, verify_input: Any, batch: Any, result: Any, pack: Outbox, taps: Taps | None) -> None:
        predict, accept_lens, accept_index = result
        size, n = len(batch.reqs), int(verify_input.draft_token_num)
        pack.add("sampled", predict.long().clone())
        pack.add("accept_lens", accept_lens[:size].long().clone())
        pack.add("accept_index", accept_index[:size].long().clone())
        drafted, self._drafted = self._drafted, None
        ended = now(self._device)
        self._recording.verified(
            Verified(
                engine_step=self._recording.engine_step,
                requests=self._recording.names(batch.reqs),
                num_nodes=n,
                is_tree=verify_input.tree_topk != 1,
                started=ended if drafted is None else drafted.ended,
                ended=ended,
                arrays=pack.send(),
                taps=taps,
                drafted=drafted,
            )
        )

    def _taps(
        self, pack: Outbox, states: Tensor | None, positions: Tensor, rows: Array, counts: Array
    ) -> Taps | None:
        """Adds fingerprints of the states that the draft is about to be fed.

        Args:
            pack: gathers the results.
            states: [tokens, A * hidden_size], all boundaries side by side.
            positions: [r] of the rows.
            rows: [r] which tokens.
            counts: [B] how many of them are each request's.
        """
        engine = self._recording.engine
        if states is None or engine.boundaries is None or not self._recording.is_full:
            return None
        hidden_size = int(engine.config.hidden_size)
        num_taps = max(int(states.shape[1]) // hidden_size, 1)
        taken = states.index_select(0, on_device(rows, self._device))
        taken = taken.view(len(rows), num_taps, -1).transpose(0, 1)  # [A, r, hidden_size]
        pack.add("tap_positions", positions.to(torch.int64))
        pack.reduce("states", self._recording.fingerprints.add, taken)
        dtype = str(states.dtype).removeprefix("torch.")
        return Taps(counts=counts, shape=(int(states.shape[0]), int(taken.shape[2])), dtype=dtype)

    # --- prompts ---

    def forward_batch_generation(
        self, original: Original, worker: Any, batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """TpModelWorker.forward_batch_generation: of it, the target's forwards over prompts."""
        guard, began = self._recording.guard, None
        if self._is_on and batch is not None:
            began = guard("forward_batch_generation", self._reading, worker, batch)
        try:
            result = original(worker, batch, *args, **kwargs)
        finally:
            self._prompt = None
        if began is not None:
            guard("forward_batch_generation", self._read, batch, result, *began)
        return result

    def _reading(self, worker: Any, batch: Any) -> tuple[Outbox, Moment] | None:
        if worker.model_runner is not self._recording.engine.target_runner:
            return None
        if not batch.forward_mode.is_extend() or batch.forward_mode.is_target_verify():
            return None
        if not self._recording.begins(batch.reqs, batch.prefix_lens):
            return None
        self._prompt = self._recording.outbox()
        return self._prompt, now(self._device)

    def _sample(self, original: Original) -> Original:
        """In place of the target's sampler, which edits logits in place."""

        def sample(logits_output: Any, *args: Any, **kwargs: Any) -> Any:
            if self._prompt is not None:
                self._recording.guard("sample", self._sampling, self._prompt, logits_output)
            return original(logits_output, *args, **kwargs)

        return sample

    def _sampling(self, pack: Outbox, output: Any) -> None:
        logits = pack.kept(output.next_token_logits)
        root = torch.zeros(len(logits), 1, dtype=torch.int64, device=logits.device)
        recording = self._recording
        pack.reduce("target", add_target, recording.workspace, logits, root, root - 1, recording.is_full)

    def _read(self, batch: Any, result: Any, pack: Outbox, started: Moment) -> None:
        size = len(batch.reqs)
        lengths = np.array(batch.extend_lens[:size], np.int64)
        prefixes = np.array(batch.prefix_lens[:size], np.int64)
        pack.add("sampled", result.next_token_ids[:size].long().clone())
        starts = np.cumsum(lengths) - lengths
        kept = [kept_rows(int(length) - 1) for length in lengths]
        rows = np.array([int(start) + row for start, own in zip(starts, kept) for row in own])
        at = np.array([int(prefix) + row for prefix, own in zip(prefixes, kept) for row in own])
        taps = self._recording.guard(
            "taps", self._taps, pack, result.logits_output.hidden_states, on_device(at, self._device), rows,
            np.array([len(own) for own in kept]),
        )  # fmt: skip
        chunked = getattr(batch, "chunked_req", None)
        self._recording.verified(
            Verified(
                engine_step=self._recording.engine_step,
                requests=self._recording.names(batch.reqs),
                num_nodes=1,
                is_tree=False,
                started=started,
                ended=now(self._device),
                arrays=pack.send(),
                taps=taps,
                prompts=[
                    (int(prefix + length), request is chunked)
                    for prefix, length, request in zip(prefixes, lengths, batch.reqs)
                ],
            )
        )

    # --- the draft reads on ---

    def _draft_extend_for_prefill(
        self, original: Original, worker: Any, batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """EagleDraftWorker._draft_extend_for_prefill: the draft reads prompts and makes its first choices."""
        guard = self._recording.guard
        lengths = guard("seed", self._begin_reading, batch)
        result = original(worker, batch, *args, **kwargs)
        if lengths is not None:
            guard("seed", self._seeded, batch, result, np.cumsum(lengths) - 1)
        return result

    def _draft_extend_for_decode(
        self, original: Original, worker: Any, batch: Any, batch_result: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """EagleDraftWorker._draft_extend_for_decode: the draft reads what was accepted."""
        guard = self._recording.guard
        began = guard("seed", self._begin_reading, batch)
        result = original(worker, batch, batch_result, *args, **kwargs)
        if began is not None:
            guard("seed", self._seeded_by, worker, batch, batch_result)
        return result

    def _begin_reading(self, batch: Any) -> list[int] | None:
        """[B] tokens that are read of each prompt, empty where it is no prompt; None where nobody looks."""
        if not self._is_on or self._watch is None or batch.forward_mode.is_idle():
            return None
        if not self._recording.follows(batch.reqs):
            return None
        self._watch.begin()
        lengths = getattr(batch, "extend_lens", None)
        return list(lengths) if isinstance(lengths, list) else []

    def _seeded_by(self, worker: Any, batch: Any, batch_result: Any) -> None:
        size, width = len(batch.reqs), int(worker.speculative_num_draft_tokens)
        first = torch.arange(size, device=self._device) * width
        last = first + batch_result.accept_lens.long()[:size] - 1  # [B]
        self._seeded(batch, batch_result.next_draft_input, last)

    def _seeded(self, batch: Any, draft_input: Any, rows: Tensor | Array) -> None:
        """Adds what the draft thinks of the first token of the next proposal.

        Args:
            batch: SGLang's.
            draft_input: with the choices.
            rows: [B] of the forward, each request's last.
        """
        seen = None if self._watch is None else self._watch.end()
        if seen is None or len(seen.logits) != 1:
            self._recording.tell_graph()
            return
        at = on_device(rows, self._device) if isinstance(rows, np.ndarray) else rows
        size, recording, pack = len(batch.reqs), self._recording, self._recording.outbox()
        logits = seen.logits[0]
        if len(logits) != size:
            logits = logits.index_select(0, at)
        raw = draft_input.topk_index[:size].long().clone()
        pack.reduce("seed", add_seed, recording.workspace, logits, raw, recording.is_full)
        if recording.is_full:
            if seen.positions:
                pack.add("seed_position", seen.positions[0].index_select(0, at))
            states = seen.fused or seen.states
            if states and len(states[0]) > 0:
                pack.add("seed_rms", rms(states[0].index_select(0, at).float()))
        recording.seeded(Seeded(requests=recording.names(batch.reqs), arrays=pack.send()))
