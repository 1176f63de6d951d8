"""Follows the draft in SGLang's rounds: it proposes, and when the target has decided it reads on.

Source: SGLang 0.5.23 srt/speculative/eagle_worker_v2.py. Its words end here. The methods are named after the
functions that they stand in for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spectrace_serving.clock import Moment, now
from spectrace_serving.outbox import Outbox
from spectrace_serving.reduction import on_device
from spectrace_sglang.events import Proposed, Seeded
from spectrace_sglang.tree import add_nodes, add_seed
from spectrace_sglang.watch import DraftWatch, Seen

if TYPE_CHECKING:
    from spectrace_sglang.recording import Recording

Original = Callable[..., Any]


class DraftFollower:
    """Stands in for the draft's hooked functions.

    Args:
        recording: is told what happens.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._device = recording.engine.device
        self._is_on = True
        self._watch: DraftWatch | None = None
        self._proposal: Proposed | None = None
        """The proposal that is about to be verified."""
        self._is_proposing = self._has_grown = False
        self._nodes: Outbox | None = None
        """The draft's own values in this round."""
        runner = recording.engine.draft_runner
        if runner is not None:
            engine = recording.engine
            self._watch = DraftWatch(
                runner,
                recording.guard,
                recording.wrap,
                is_fused=engine.method == "eagle3",
                is_drawn=engine.is_drawn,
            )

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
        self._proposal = self._nodes = None
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
        if len(seen.inputs) == len(seen.positions) > 0 and recording.is_full:
            pack.add("row_rms", torch.stack(seen.inputs))  # [steps - 1, B * topk]
        self._nodes = pack

    def _proposed(self, started: Moment) -> None:
        self._is_proposing = False
        if not self._has_grown:
            self._recording.tell_graph()
        nodes, self._nodes = self._nodes, None
        if nodes is not None:
            self._recording.thin(nodes)
        self._proposal = Proposed(
            started=started,
            ended=now(self._device),
            arrays=None if nodes is None else nodes.send(),
            topk=self._recording.engine.topk,
            num_bytes=0 if nodes is None else nodes.num_bytes,
        )

    # --- the draft reads on ---

    def _draft_extend_for_prefill(
        self, original: Original, worker: Any, batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """EagleDraftWorker._draft_extend_for_prefill: the draft reads prompts and makes its first choices."""
        guard = self._recording.guard
        lengths = guard("seed", self._begin_reading, batch)
        result = original(worker, batch, *args, **kwargs)
        seen = None if self._watch is None else self._watch.end()
        if lengths is not None:
            guard("seed", self._seeded_by_prompts, batch, result, lengths, seen)
        return result

    def _draft_extend_for_decode(
        self, original: Original, worker: Any, batch: Any, batch_result: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """EagleDraftWorker._draft_extend_for_decode: the draft reads what was accepted."""
        guard = self._recording.guard
        began = guard("seed", self._begin_reading, batch)
        result = original(worker, batch, batch_result, *args, **kwargs)
        seen = None if self._watch is None else self._watch.end()
        if began is not None:
            guard("seed", self._seeded_by, worker, batch, batch_result, seen)
        return result

    def _begin_reading(self, batch: Any) -> list[int] | None:
        """[B] tokens that are read of each prompt, empty where it is no prompt; None where nobody looks."""
        if not self._is_on or self._watch is None or batch.forward_mode.is_idle():
            return None
        if not self._recording.follows(batch.reqs):
            return None
        lengths = getattr(batch, "extend_lens", None)
        self._watch.begin()
        return list(lengths) if isinstance(lengths, list) else []

    def _seeded_by_prompts(self, batch: Any, draft_input: Any, lengths: list[int], seen: Seen | None) -> None:
        self._seeded(batch, draft_input, on_device(np.cumsum(lengths) - 1, self._device), seen)

    def _seeded_by(self, worker: Any, batch: Any, batch_result: Any, seen: Seen | None) -> None:
        size, width = len(batch.reqs), int(worker.speculative_num_draft_tokens)
        first = torch.arange(size, device=self._device) * width
        last = first + batch_result.accept_lens.long()[:size] - 1  # [B]
        self._seeded(batch, batch_result.next_draft_input, last, seen)

    def _seeded(self, batch: Any, draft_input: Any, at: Tensor, seen: Seen | None) -> None:
        """Adds what the draft thinks of the first token of the next proposal.

        Args:
            batch: SGLang's.
            draft_input: with the choices.
            at: [B] rows of the forward, each request's last.
            seen: of that forward.
        """
        if seen is None or len(seen.logits) != 1:
            self._recording.tell_graph()
            return
        size, recording, pack = len(batch.reqs), self._recording, self._recording.outbox()
        logits = seen.logits[0]
        if len(logits) != size:
            logits = logits.index_select(0, at)
        raw = draft_input.topk_index[:size].long().clone()
        pack.reduce("seed", add_seed, recording.workspace, logits, raw, recording.is_full)
        if recording.is_full:
            if seen.positions:
                pack.add("seed_position", seen.positions[0].index_select(0, at))
            if seen.inputs:
                pack.add("seed_rms", seen.inputs[0].index_select(0, at))
        recording.thin(pack)
        recording.put(
            Seeded(requests=recording.names(batch.reqs), arrays=pack.send(), num_bytes=pack.num_bytes)
        )
