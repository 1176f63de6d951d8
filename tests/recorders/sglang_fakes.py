"""Stand-ins for SGLang's scheduler and its speculative worker: names, shapes, order of calls of 0.5.23.

After multiples of `WRONG` the right token is only the draft's second choice. Needs torch, not SGLang.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace as Bag
from typing import Any

import torch
from torch import Tensor, nn

from tests.recorders.serving_fakes import EOS, HIDDEN, KEPT, OFFSET, VOCAB, target_logits
from tests.recorders.sglang_fake_models import DraftRunner, model_config

STEPS = 3
"""Longest path of a proposal."""
Around = Callable[..., Any]


class Request:
    """SGLang's Req."""

    def __init__(self, rid: str, prompt: list[int], **sampling: Any) -> None:
        usual = {
            "temperature": 1.0, "top_k": 1, "top_p": 1.0, "sampling_seed": None, "max_new_tokens": 32,
            "stop_token_ids": None, "ignore_eos": False,
        }  # fmt: skip
        self.rid = rid
        self.origin_input_ids = list(prompt)
        self.sampling_params = Bag(**{**usual, **sampling})
        self.eos_token_ids = {EOS}
        self.tokenizer = None
        self.text = list(prompt)


class Mode:
    """SGLang's ForwardMode."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_idle(self) -> bool:
        """No request."""
        return self.name == "idle"

    def is_extend(self) -> bool:
        """Prompts, or what was accepted, are read."""
        return self.name in ("extend", "verify")

    def is_target_verify(self) -> bool:
        """The target reads a proposal."""
        return self.name == "verify"


class Scheduler:
    """SGLang's scheduler with its workers; drives rounds.

    Args:
        requests: in the batch.
        topk: 1 for chains.
        device: of every tensor.
    """

    def __init__(self, requests: list[Request], topk: int = 1, device: str = "cpu") -> None:
        self.requests, self.topk, self.device = requests, topk, torch.device(device)
        self.num_nodes = STEPS if topk == 1 else 6
        self.server_args = Bag(disable_cuda_graph=True, speculative_eagle_topk=topk)
        self.tokenizer = None
        self.spec_algorithm = Bag(name="EAGLE3")
        target = nn.Module()
        target.model = nn.Module()
        target.model.layers_to_capture = [2, 4, 5]  # type: ignore[assignment]
        target.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
        self.target_runner = Bag(
            model=target, model_config=model_config("somebody/target"), device=device, sample=_argmax
        )
        self.tp_worker: Any = Bag(model_runner=self.target_runner)
        hot = torch.arange(KEPT) + OFFSET
        self.drafter: Any = Bag(
            draft_runner=DraftRunner(device), hot_token_id=hot.to(device),
            speculative_num_draft_tokens=self.num_nodes + 1,
        )  # fmt: skip
        self.draft_worker: Any = Bag(
            draft_worker=self.drafter, topk=topk, speculative_num_steps=STEPS,
            speculative_num_draft_tokens=self.num_nodes + 1,
        )  # fmt: skip
        self.random = torch.Generator().manual_seed(0)
        self.around: Callable[[str], Around | None] = lambda name: None
        """What stands in for each function; None while nothing is hooked."""
        self.is_graph = False
        """The draft's forwards pass no hook."""
        self.reports: list[list[int]] = []
        """[B] accepted of each round, the target's own token not counted."""
        self._seeds: Any = None

    def call(self, name: str, original: Around, *args: Any, **kwargs: Any) -> Any:
        """Calls a function as SGLang's registry does."""
        around = self.around(name)
        return original(*args, **kwargs) if around is None else around(original, *args, **kwargs)

    # --- rounds ---

    @torch.no_grad()
    def prefill(self, chunked: Request | None = None) -> None:
        """Reads the prompts."""
        ids = [token for request in self.requests for token in request.text]
        lengths = [len(request.text) for request in self.requests]
        batch = self._batch("extend", extend_lens=lengths, prefix_lens=[0] * len(lengths))
        batch.chunked_req = chunked
        batch.input_ids = torch.tensor(ids).to(self.device)
        result = self.call("forward_batch_generation", self._forward, self.tp_worker, batch)
        for request, token in zip(self.requests, self._tokens(result.next_token_ids)):
            if request is not chunked:
                request.text.append(token)
        states = result.logits_output.hidden_states
        args = (self.drafter, batch, states, result.next_token_ids)
        self._seeds = self.call("_draft_extend_for_prefill", self._extend_prefill, *args)

    @torch.no_grad()
    def round(self) -> None:
        """Proposes, verifies, reads on."""
        batch = self._batch("decode")
        verify = self.call("draft", self._draft, self.drafter, batch)
        batch.forward_mode = Mode("verify")
        logits = target_logits(verify.draft_token)
        output = Bag(next_token_logits=logits, hidden_states=self._states(len(logits)))
        result = self.call("eagle_sample", self._eagle_sample, verify, batch, output, None)
        done = Bag(
            accept_lens=result[1], logits_output=output, next_token_ids=result[0], next_draft_input=Bag()
        )
        self.call("_draft_extend_for_decode", self._extend_decode, self.drafter, batch, done)
        self._seeds = done.next_draft_input

    def _batch(self, mode: str, **more: Any) -> Any:
        # The last token is not in the cache yet.
        lengths = [len(request.text) - (mode == "decode") for request in self.requests]
        return Bag(
            reqs=list(self.requests), forward_mode=Mode(mode), seq_lens=torch.tensor(lengths).to(self.device),
            spec_info=self._seeds, **more,
        )  # fmt: skip

    def _states(self, rows: int) -> Tensor:
        return torch.randn(rows, 3 * HIDDEN, generator=self.random).to(self.device)

    def _tokens(self, tensor: Tensor) -> list[int]:
        if tensor.device.type == "meta":
            return [7] * len(tensor)
        found: list[int] = tensor.tolist()
        return found

    # --- SGLang's functions ---

    def _forward(self, worker: Any, batch: Any, **_: Any) -> Any:
        ends = torch.tensor(batch.extend_lens).cumsum(0) - 1
        output = Bag(
            next_token_logits=target_logits(batch.input_ids[ends.to(self.device)]),
            hidden_states=self._states(len(batch.input_ids)),
        )
        return Bag(logits_output=output, next_token_ids=worker.model_runner.sample(output, batch))

    def _run(self, ids: Tensor, positions: Tensor, states: Tensor, rows: Tensor | None) -> Any:
        batch = Bag(input_ids=ids, positions=positions, spec_info=Bag(hidden_states=states), rows=rows)
        runner = self.drafter.draft_runner
        if self.is_graph:
            return DraftRunner.forward(runner, batch).logits_output
        output = runner.forward(batch).logits_output
        positions.add_(1)  # as SGLang does, in place
        return output

    def _extend_prefill(self, drafter: Any, batch: Any, states: Tensor, next_ids: Tensor) -> Any:
        ends = (torch.tensor(batch.extend_lens).cumsum(0) - 1).to(self.device)
        ids = batch.input_ids.roll(-1)
        ids[ends] = next_ids
        positions = torch.cat([torch.arange(length) for length in batch.extend_lens]).to(self.device)
        return self._seed(self._run(ids, positions, states, ends))

    def _extend_decode(self, drafter: Any, batch: Any, result: Any) -> None:
        width, size = self.num_nodes + 1, len(batch.reqs)
        ids = torch.zeros(size * width, dtype=torch.int64).to(self.device)
        last = (torch.arange(size) * width).to(self.device) + result.accept_lens - 1
        ids[last] = torch.tensor([request.text[-1] for request in self.requests]).to(self.device)
        positions = (batch.seq_lens.unsqueeze(1) + torch.arange(width).to(self.device)).reshape(-1)
        output = self._run(ids, positions, result.logits_output.hidden_states, None)
        output.next_token_logits = output.next_token_logits[last]
        result.next_draft_input = self._seed(output)

    def _seed(self, output: Any) -> Any:
        found = output.next_token_logits.softmax(-1).topk(self.topk)
        return Bag(topk_p=found.values, topk_index=found.indices)

    def _draft(self, drafter: Any, batch: Any) -> Any:
        forward_batch = Bag(spec_info=batch.spec_info, seq_lens=batch.seq_lens)
        if self.is_graph:
            grown = self._draft_forward(drafter, forward_batch)
        else:
            grown = self.call("draft_forward", self._draft_forward, drafter, forward_batch)
        return self._verify_input(batch, *grown[:3])

    def _draft_forward(self, drafter: Any, forward_batch: Any) -> Any:
        """Parents in SGLang's list, places in it and mapped ids of the nodes that are kept."""
        size, topk = len(self.requests), self.topk
        scores, raw = forward_batch.spec_info.topk_p, forward_batch.spec_info.topk_index
        tokens = drafter.hot_token_id[raw]  # [B, topk]
        all_scores, all_tokens = [scores], [tokens]
        parents = [torch.arange(-1, topk).expand(size, topk + 1).to(self.device)]
        states = torch.ones(size * topk, HIDDEN).to(self.device)
        positions = forward_batch.seq_lens.repeat_interleave(topk)
        for depth in range(1, STEPS):
            output = self._run(tokens.reshape(-1), positions, states * depth, None)
            found = output.next_token_logits.softmax(-1).topk(topk)
            path = (scores.unsqueeze(2) * found.values.view(size, topk, topk)).flatten(1)  # [B, topk ** 2]
            mapped = drafter.hot_token_id[found.indices].view(size, topk * topk)
            all_scores.append(path)
            all_tokens.append(mapped)
            best = path.topk(topk)
            scores, tokens = best.values, mapped.gather(1, best.indices)
            parents.append(best.indices + topk * topk * (depth - 1) + topk)
        places = torch.cat(all_scores, 1).topk(self.num_nodes).indices.sort().values
        return torch.cat(parents[:-1], 1), places, torch.cat(all_tokens, 1).gather(1, places), None

    def _verify_input(self, batch: Any, parent_list: Tensor, places: Tensor, tokens: Tensor) -> Any:
        size, n = len(batch.reqs), self.num_nodes + 1
        roots = torch.tensor([[request.text[-1]] for request in self.requests]).to(self.device)
        children = torch.full((2, size, n), -1, dtype=torch.int64)
        depths = torch.zeros(size, n, dtype=torch.int64)
        if self.device.type != "meta":
            for at in range(size):
                _link(parent_list[at].tolist(), places[at].tolist(), self.topk, children[:, at], depths[at])
        return Bag(
            draft_token=torch.cat((roots, tokens), 1).flatten(), draft_token_num=n, tree_topk=self.topk,
            positions=(batch.seq_lens.unsqueeze(1) + depths.to(self.device)).flatten(),
            retrieve_next_token=children[0].to(self.device),
            retrieve_next_sibling=children[1].to(self.device),
        )  # fmt: skip

    def _eagle_sample(self, verify: Any, batch: Any, output: Any, _mask: Any) -> Any:
        size, n = len(batch.reqs), verify.draft_token_num
        index = torch.full((size, STEPS + 1), -1, dtype=torch.int32)
        lengths = torch.ones(size, dtype=torch.int32)
        if self.device.type == "meta":
            index[:, 0] = torch.arange(size) * n
            return (
                torch.zeros(size * n, dtype=torch.int32, device="meta"),
                lengths.to("meta"),
                index.to("meta"),
            )
        picks = output.next_token_logits.argmax(-1)
        output.next_token_logits.fill_(0.0)  # penalties and masks are added in place
        ids = verify.draft_token.view(size, n)
        for at, request in enumerate(batch.reqs):
            path = [0]
            while True:
                node = int(verify.retrieve_next_token[at, path[-1]])
                while node >= 0 and ids[at, node] != picks[at * n + path[-1]]:
                    node = int(verify.retrieve_next_sibling[at, node])
                if node < 0:
                    break
                path.append(node)
            index[at, : len(path)] = torch.tensor([at * n + node for node in path])
            lengths[at] = len(path)
            request.text += picks[[at * n + node for node in path]].tolist()
        self.reports.append((lengths - 1).tolist())
        return picks.to(torch.int32), lengths, index


def _argmax(output: Any, _batch: Any) -> Tensor:
    """The target's sampler."""
    picks: Tensor = output.next_token_logits.argmax(-1)
    output.next_token_logits.fill_(0.0)
    return picks


def _link(parent_list: list[int], places: list[int], topk: int, links: Tensor, depths: Tensor) -> None:
    """First child and next sibling of each node, from where it stands in SGLang's list."""
    node_at = {-1: 0, **{place: node for node, place in enumerate(places, 1)}}
    last_child: dict[int, int] = {}
    for place, node in ((place, node_at[place]) for place in places):
        parent = node_at[parent_list[place // topk]]
        if parent in last_child:
            links[1, last_child[parent]] = node
        else:
            links[0, parent] = node
        last_child[parent] = node
        depths[node] = depths[parent] + 1
