"""Follows SGLang's rounds: the target reads prompts, and verifies what the draft proposed (propose.py).

Source: SGLang 0.5.23 srt/speculative/eagle_worker_common.py and eagle_utils.py, srt/managers/tp_worker.py.
Its words end here. The methods are named after the functions that they stand in for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spectrace_serving.clock import Moment, now
from spectrace_serving.outbox import Outbox
from spectrace_serving.reduction import kept_rows, on_device
from spectrace_serving.rows import Taps
from spectrace_sglang.events import Verified
from spectrace_sglang.propose import DraftFollower, Original
from spectrace_sglang.tree import UNLINKED, add_target, parents_of
from spectrace_transformers.reduction import Array

if TYPE_CHECKING:
    from spectrace_sglang.recording import Recording


class Follower(DraftFollower):
    """Stands in for the hooked functions of one scheduler.

    Args:
        recording: is told what happens.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self._prompt: Outbox | None = None
        """Of prompts that are being read."""
        self._chains: dict[int, Tensor] = {}
        recording.wrap(recording.engine.target_runner, "sample", self._sample)

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
            self._proposal = None
            return None
        recording, pack = self._recording, self._recording.outbox()
        size, n = len(batch.reqs), int(verify_input.draft_token_num)
        ids = verify_input.draft_token[: size * n].view(size, n).to(torch.int64, copy=True)
        parents = self._chain_of(n).expand(size, n)
        if verify_input.tree_topk != 1:
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

    def _chain_of(self, n: int) -> Tensor:
        """[n] parents of a chain's nodes, kept from round to round."""
        if n not in self._chains:
            self._chains[n] = torch.arange(-1, n - 1, device=self._device)
            self._chains[n][0] = UNLINKED
        return self._chains[n]

    def _verified(self, verify_input: Any, batch: Any, result: Any, pack: Outbox, taps: Taps | None) -> None:
        predict, accept_lens, accept_index = result
        size, n = len(batch.reqs), int(verify_input.draft_token_num)
        pack.add("sampled", predict.long().clone())
        pack.add("accept_lens", accept_lens[:size].long().clone())
        pack.add("accept_index", accept_index[:size].long().clone())
        proposed, self._proposal = self._proposal, None
        ended = now(self._device)
        names = self._recording.names(batch.reqs)
        is_lost = self._recording.loses(sum(map(bool, names)), pack)
        self._recording.put(
            Verified(
                engine_step=self._recording.engine_step,
                requests=names,
                num_nodes=n,
                is_tree=verify_input.tree_topk != 1,
                started=ended if proposed is None else proposed.ended,
                ended=ended,
                arrays=pack.send(),
                num_bytes=pack.num_bytes + (0 if proposed is None else proposed.num_bytes),
                is_lost=is_lost,
                taps=taps,
                proposed=proposed,
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
        rows, counts = kept_rows(starts, lengths - 1)
        at, _ = kept_rows(prefixes, lengths - 1)
        taps = self._recording.guard(
            "taps", self._taps, pack, result.logits_output.hidden_states, on_device(at, self._device), rows,
            counts,
        )  # fmt: skip
        chunked = getattr(batch, "chunked_req", None)
        names = self._recording.names(batch.reqs)
        is_lost = self._recording.loses(sum(map(bool, names)), pack)
        self._recording.put(
            Verified(
                engine_step=self._recording.engine_step,
                requests=names,
                num_nodes=1,
                is_tree=False,
                started=started,
                ended=now(self._device),
                arrays=pack.send(),
                num_bytes=pack.num_bytes,
                is_lost=is_lost,
                taps=taps,
                prompts=[
                    (int(prefix + length), request is chunked)
                    for prefix, length, request in zip(prefixes, lengths, batch.reqs)
                ],
            )
        )
