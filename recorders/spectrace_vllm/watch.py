"""Looks at the draft model while it proposes: its logits, positions and inputs, depth by depth.

Forward hooks on the live modules, silent outside a proposal: warm-up and the capture of graphs run the same
modules. A graph that is replayed does not pass here, and what was seen then is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spectrace_serving.guard import Guard
from spectrace_serving.outbox import Outbox
from spectrace_transformers.reduction import Pack, Workspace
from spectrace_vllm.chain import add_draft, add_inputs


class DraftWatch:
    """Follows one draft model.

    Args:
        model: the draft as vLLM loaded it.
        guard: runs an action of ours; whatever it raises ends the recording of this part only.
        workspace: memory for its logits.
        block: rows of a request where one forward drafts all tokens from the last rows of each; else None.
        is_greedy: the draft takes its first choice; else vLLM divides its logits in place.
        is_full: not only the raw ids.
    """

    def __init__(
        self,
        model: Any,
        guard: Guard,
        workspace: Workspace,
        *,
        block: int | None,
        is_greedy: bool,
        is_full: bool,
    ) -> None:
        self._guard = guard
        self._workspace = workspace
        self._block = block
        self._is_greedy = is_greedy
        self._is_chained = hasattr(model, "markov_bias")
        self._is_full = is_full
        self._batch = 0
        self._first: Callable[[], Tensor | None] | None = None
        self._forget()
        self._handles: list[Any] = []
        for holder in (model, getattr(model, "model", None)):  # MTP layers keep it one level down
            head = getattr(holder, "logits_processor", None)
            if isinstance(head, torch.nn.Module):
                self._handles.append(head.register_forward_hook(self._said))
                break
        if is_full:
            self._handles.append(model.register_forward_pre_hook(self._read, with_kwargs=True))

    def _forget(self) -> None:
        self._logits: list[Tensor] = []
        self._positions: list[Tensor] = []
        self._inputs: list[Tensor] = []

    def remove(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def begin(self, batch: int, first: Callable[[], Tensor | None]) -> None:
        """A proposal begins.

        Args:
            batch: B requests.
            first: gives, once the first forward begins, its row of each request.
        """
        self._forget()
        self._batch, self._first = batch, first

    def stop(self) -> None:
        """The drafter has returned: from here on nothing is kept, whatever else goes wrong."""
        self._first = None

    def end(self, pack: Outbox, proposal: Tensor, raw_of: Tensor, *, is_greedy: bool) -> bool:
        """A proposal is over; adds what was seen of it.

        Args:
            pack: gathers the results.
            proposal: [B, K] ids in the target's vocabulary.
            raw_of: as `chain.add_draft` takes it, like the next.
            is_greedy: the draft takes its first choice.

        Returns:
            Whether the draft's logits were seen.
        """
        logits = self._by_depth(proposal.shape[1])
        if logits:
            wanted = proposal[:, : len(logits)]
            pack.reduce("draft", add_draft, self._workspace, logits, wanted, raw_of, is_greedy, self._is_full)
        if self._positions:
            positions = self._positions
            if self._block is not None:
                rows = positions[0][: self._batch * self._block].view(self._batch, self._block)
                positions = list(rows[:, -proposal.shape[1] :].unbind(1))
            pack.reduce("draft positions", _add_positions, positions)
        if self._inputs:
            pack.reduce("draft inputs", add_inputs, self._inputs)
        self._forget()
        return bool(logits)

    def _by_depth(self, num_drafted: int) -> list[Tensor]:
        """Per depth [B, V]; empty where something else passed than one draft of this batch."""
        seen, sizes = self._logits, [rows.shape[0] for rows in self._logits]
        all_rows = self._batch * num_drafted
        if sizes == [all_rows, *[self._batch] * num_drafted]:
            # DSpark: what each token adds by the one before.
            own = seen[0].view(self._batch, num_drafted, -1).unbind(1)
            return [rows + added for rows, added in zip(own, seen[1:])]
        if self._is_chained:  # among a few candidates, which is seen in part only
            return []
        if sizes == [all_rows] and num_drafted > 1:  # parallel drafting: one forward for all
            return list(seen[0].view(self._batch, num_drafted, -1).unbind(1))
        return seen if all(size == self._batch for size in sizes) else []

    # --- hooks ---

    def _said(self, _module: Any, _args: Any, output: Any) -> None:
        if self._first is not None and isinstance(output, Tensor):
            self._guard("draft", self._keep, output)

    def _keep(self, logits: Tensor) -> None:
        """Keeps a forward's logits; a draft that draws divides them by its temperature, in place.

        Source: vLLM 0.32.0 v1/spec_decode/llm_base_proposer.py, compute_probs_and_sample_next_token.
        """
        self._logits.append(logits if self._is_greedy else logits.clone())

    def _read(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._first is not None:
            self._guard("draft inputs", self._note, args, kwargs)

    def _note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert self._first is not None
        positions, hidden = kwargs.get("positions"), kwargs.get("hidden_states")
        if not isinstance(positions, Tensor) or positions.dim() != 1:
            return
        if self._positions:  # a row per request
            self._positions.append(positions[: self._batch].clone())
            if isinstance(hidden, Tensor):
                self._inputs.append(hidden[: self._batch].clone())
            return
        if self._block is not None:
            self._positions.append(positions.clone())
            return
        found = self._first()
        if found is not None:
            at = found[: self._batch]
            self._positions.append(positions.index_select(0, at))
            if isinstance(hidden, Tensor):
                self._inputs.append(hidden.index_select(0, at))


def _add_positions(pack: Pack, positions: list[Tensor]) -> None:
    """Where each forward of the draft stood: per depth [B]."""
    pack.add("draft_positions", torch.stack(positions))  # [K, B]
