"""Stand-ins for vLLM's two model runners: names, shapes and order of calls of vLLM 0.32.0, tiny and exact.

After multiples of `WRONG` the draft says something else than the target. Needs torch, not vLLM.
"""

from __future__ import annotations

from types import SimpleNamespace as Bag
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.recorders.serving_fakes import EOS, HIDDEN, KEPT, LAYERS, VOCAB, target_logits
from tests.recorders.vllm_fake_models import Draft, Target

K = 3
"""Draft tokens a step."""


def configs(method: str = "eagle3", **speculative: Any) -> Any:
    """A VllmConfig with what the recorder asks of it."""
    target = Bag(vocab_size=VOCAB, num_hidden_layers=LAYERS, hidden_size=HIDDEN, eos_token_id=EOS)
    draft = Bag(vocab_size=VOCAB, draft_vocab_size=KEPT, num_hidden_layers=1, hidden_size=HIDDEN)

    def model(name: str, hf: Any) -> Any:
        return Bag(
            model=name, revision=None, hf_config=hf, hf_text_config=hf, dtype=torch.float32,
            quantization=None, max_model_len=256, enforce_eager=True,
            get_total_num_hidden_layers=lambda: LAYERS,
        )  # fmt: skip

    return Bag(
        model_config=model("somebody/target", target),
        speculative_config=Bag(
            method=method, num_speculative_tokens=K, draft_sample_method="greedy",
            rejection_sample_method="standard", draft_model_config=model("somebody/draft", draft),
            **speculative,
        ),
        scheduler_config=Bag(async_scheduling=False, max_num_seqs=8, max_num_batched_tokens=64),
        cache_config=Bag(enable_prefix_caching=False),
        parallel_config=Bag(tensor_parallel_size=1, pipeline_parallel_size=1),
    )  # fmt: skip


def sampling(**changed: Any) -> Any:
    """A greedy request's SamplingParams."""
    usual: dict[str, Any] = {
        "temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": None, "max_tokens": 32, "stop_token_ids": [],
        "ignore_eos": False, "eos_token_id": EOS,
    }  # fmt: skip
    return Bag(**{**usual, **changed})


class _World:
    """Requests and their tokens; makes batches and greedy decisions. The runners differ in who asks."""

    def __init__(self, prompts: dict[str, list[int]], device: str) -> None:
        self.texts = {name: list(prompt) for name, prompt in prompts.items()}
        self.lengths = {name: len(prompt) for name, prompt in prompts.items()}
        self.drafts: dict[str, list[int]] = {name: [] for name in prompts}
        self.device = torch.device(device)
        self.finished: set[str] = set()
        self.num_steps = 0
        self.sampling = {name: sampling() for name in prompts}
        self.hidden = torch.Generator().manual_seed(0)

    def scheduled(self) -> Any:
        """The scheduler's words for the next step."""
        first = self.num_steps == 0
        live = [name for name in self.texts if name not in self.finished]
        new = [
            Bag(
                req_id=name,
                prompt_token_ids=self.texts[name],
                sampling_params=self.sampling[name],
                num_computed_tokens=0,
            )
            for name in live
        ]
        return Bag(
            scheduled_new_reqs=new if first else [],
            finished_req_ids=set(self.finished),
            num_scheduled_tokens={
                name: len(self.texts[name]) if first else 1 + len(self.drafts[name]) for name in live
            },
        )

    def batch(self, scheduled: Any) -> Any:
        """The batch of a step, as both runners hold it."""
        names = list(scheduled.num_scheduled_tokens)
        first = self.num_steps == 0
        ids: list[int] = []
        positions: list[int] = []
        counts: list[int] = []
        for name in names:
            text, draft = self.texts[name], self.drafts[name]
            own = list(text) if first else [text[-1], *draft]
            start = 0 if first else len(text) - 1
            ids += own
            positions += range(start, start + len(own))
            counts.append(1 + len(draft))
        scheduled_np = np.array(list(scheduled.num_scheduled_tokens.values()), np.int32)
        ends = np.cumsum(scheduled_np)
        at = np.concatenate([np.arange(end - n, end) for end, n in zip(ends, counts)])
        self.num_steps += 1
        to = self.device
        return Bag(
            req_ids=names, num_reqs=len(names), num_scheduled_tokens=scheduled_np,
            input_ids=torch.tensor(ids, dtype=torch.int32).to(to), positions=torch.tensor(positions).to(to),
            logits_indices=torch.from_numpy(at).to(to), counts=counts,
            query_start_loc_np=np.concatenate([[0], ends]).astype(np.int32),
            cu_num_logits_np=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            seq_lens=torch.tensor([positions[end - 1] + 1 for end in ends], dtype=torch.int32).to(to),
        )  # fmt: skip

    def sampled(self, batch: Any) -> tuple[Tensor, Tensor]:
        """[B, K+1] tokens, padded by -1, and [B] how many."""
        rows = np.full((batch.num_reqs, K + 1), -1)
        for at, name in enumerate(batch.req_ids):
            token, taken = self.texts[name][-1], 0
            for drafted in [*self.drafts[name], None]:
                token = EOS if token == EOS - 1 else (token + 1) % VOCAB
                rows[at, taken] = token
                taken += 1
                if drafted != token:
                    break
            self.texts[name] += rows[at, :taken].tolist()
        return torch.from_numpy(rows).to(self.device), torch.from_numpy((rows >= 0).sum(1)).to(self.device)

    def states(self, batch: Any) -> list[Tensor]:
        """Three layers' states of a forward."""
        shape = (3, len(batch.input_ids), HIDDEN)
        return list(torch.randn(shape, generator=self.hidden).to(self.device))

    def draft(self, model: Any, batch: Any, rows: Tensor) -> Tensor:
        """[B, K] drafted one after the other, as vLLM's proposers do."""
        last = torch.tensor([self.texts[name][-1] for name in batch.req_ids]).to(self.device)
        found, read = [], last
        for depth in range(K):
            hidden = torch.ones(len(batch.input_ids) if depth == 0 else len(last), HIDDEN).to(self.device)
            positions = batch.positions if depth == 0 else torch.arange(len(last)).to(self.device) + depth
            model(input_ids=read, positions=positions, hidden_states=hidden)
            read = model.compute_logits(read).argmax(-1)
            found.append(read)
        proposal = torch.stack(found, 1)
        if self.device.type != "meta":
            self.drafts = dict(zip(batch.req_ids, proposal.tolist()))
        else:
            self.drafts = {name: [9] * K for name in batch.req_ids}
        return proposal


class V1Runner:
    """vLLM's V1 GPUModelRunner, as far as the recorder looks at it."""

    def __init__(self, prompts: dict[str, list[int]], device: str = "cpu", **speculative: Any) -> None:
        self.world = _World(prompts, device)
        self.device = torch.device(device)
        self.vllm_config = configs(**speculative)
        self.model, self.drafter = Target(), _Drafter()

    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> None:
        """The target's forward."""
        self.batch = batch = self.world.batch(scheduler_output)
        size = batch.num_reqs
        self.input_batch = Bag(req_ids=batch.req_ids)
        starts = torch.from_numpy(batch.query_start_loc_np)
        self.query_start_loc = Bag(np=batch.query_start_loc_np, gpu=starts.to(self.device))
        self.input_ids = Bag(gpu=batch.input_ids)
        self.positions, self.seq_lens = batch.positions, batch.seq_lens
        self.discard_request_mask = Bag(np=np.zeros(size, bool))

    def _sample(self, logits: Tensor, spec_decode_metadata: Any) -> Any:
        logits.fill_(0.0)  # samplers edit logits in place
        return Bag(sampled_token_ids=self.world.sampled(self.batch)[0])

    def propose_draft_token_ids(
        self, scheduler_output: Any, sampled_token_ids: Any, sampling_metadata: Any, hidden_states: Any,
        sample_hidden_states: Any, aux_hidden_states: Any,
    ) -> Tensor:  # fmt: skip
        """[B, K] ids in the target's vocabulary."""
        rows = self.query_start_loc.gpu[1:] - 1
        self.drafter.set_inputs_first_pass(None, None, None, None, rows)
        return self.world.draft(self.drafter.model, self.batch, rows)

    def step(self) -> None:
        """One engine step, in vLLM's order."""
        scheduled = self.world.scheduled()
        self.execute_model(scheduled)
        batch = self.batch
        logits = target_logits(batch.input_ids[batch.logits_indices])
        metadata = None
        if sum(batch.counts) > len(batch.counts):
            metadata = Bag(
                num_draft_tokens=[n - 1 for n in batch.counts], logits_indices=batch.logits_indices
            )
        output = self._sample(logits, metadata)
        states = self.world.states(batch)
        self.propose_draft_token_ids(scheduled, output.sampled_token_ids, None, None, None, states)


class _Drafter:
    def __init__(self) -> None:
        self.model = Draft()

    def set_inputs_first_pass(
        self, target_token_ids: Any, next_token_ids: Any, target_positions: Any, target_hidden_states: Any,
        token_indices_to_sample: Any,
    ) -> Any:  # fmt: skip
        return 0, token_indices_to_sample, None


class V2Runner:
    """vLLM's V2 GPUModelRunner, as far as the recorder looks at it."""

    def __init__(self, prompts: dict[str, list[int]], device: str = "cpu", **speculative: Any) -> None:
        self.world = _World(prompts, device)
        self.device = torch.device(device)
        self.vllm_config = configs(**speculative)
        self.model = Target()
        self.speculator = _Speculator(self.world)

    def execute_model(
        self, scheduler_output: Any, intermediate_tensors: Any = None, dummy_run: bool = False
    ) -> None:
        """The target's forward."""
        self.batch = self.world.batch(scheduler_output)

    def sample(self, hidden_states: Any, input_batch: Any, grammar_output: Any) -> Any:
        """Verifies and samples."""
        logits = self.model.compute_logits(input_batch.input_ids[input_batch.logits_indices])
        logits.fill_(0.0)
        sampled, number = self.world.sampled(input_batch)
        return Bag(sampled_token_ids=sampled), number, None

    def step(self) -> None:
        """One engine step, in vLLM's order."""
        self.execute_model(self.world.scheduled())
        self.sample(None, self.batch, None)
        self.speculator.propose(self.batch, None, None, None, self.world.states(self.batch), None, None)


class _Speculator:
    def __init__(self, world: _World) -> None:
        self.model = Draft()
        self._world = world

    def propose(
        self, input_batch: Any, attn_metadata: Any, slot_mappings: Any, last_hidden_states: Any,
        aux_hidden_states: Any, num_sampled: Any, num_rejected: Any, dummy_run: bool = False,
    ) -> Tensor:  # fmt: skip
        ends = torch.from_numpy(input_batch.query_start_loc_np[1:] - 1)
        self.last_token_indices = ends.to(self._world.device)
        return self._world.draft(self.model, input_batch, self.last_token_indices)


class FakeWorker:
    """What vLLM hands to the plugin."""

    rank = 0

    def __init__(self, runner: Any) -> None:
        self.model_runner = runner
