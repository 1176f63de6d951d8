"""Faults of the loop around draft and target: batches, uptime, what is counted and printed, what is run."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from benchmarks.faults.rig import Rig, prompts_of, shared_target, swapped, tokenizer
from benchmarks.faults.verifying import TEMPERATURE
from spectrace_demo.world import FACTS
from spectrace_eagle3 import Chain, Eagle3Decoder, Eagle3Recorder
from spectrace_eagle3 import decoder as loop
from spectrace_eagle3.decoder import Round
from spectrace_eagle3.rows import DraftRows
from spectrace_eagle3.sampling import Sampler
from spectrace_eagle3.steps import step_fields
from spectrace_transformers.facts import ids_digest

Fields = Mapping[str, Any]


def adding(more: Callable[[Eagle3Decoder, dict[str, Any]], Fields]) -> Callable[..., Eagle3Recorder]:
    """A recorder that notes more about each step.

    Args:
        more: further fields, from the decoder and the fields known already.
    """

    def make(path: Path, decoder: Eagle3Decoder, **options: Any) -> Eagle3Recorder:
        recorder = Eagle3Recorder(path, decoder, **options)
        writer: Any = recorder._writer
        write = writer.step
        writer.step = lambda fields: write({**fields, **more(decoder, fields)})
        return recorder

    return make


# --- several requests at once ----------------------------------------------------------------------

ROWS = 8


class NoisyRows(DraftRows):
    """Reads logits that a kernel has spoilt."""

    def _run(self, *args: Any) -> tuple[Tensor, Tensor]:
        logits, states = super()._run(*args)
        return logits + 4 * torch.randn(logits.shape, generator=_NOISE), states


_NOISE = torch.Generator().manual_seed(0)


class BatchRecorder(Eagle3Recorder):
    """Records requests that advance in turns, each in a row of the batch."""

    def batch(self, decoders: Sequence[Eagle3Decoder], prompts: Sequence[Sequence[int]], limit: int) -> None:
        """Runs one batch to its end.

        Args:
            decoders: one for each row.
            prompts: one for each row.
            limit: new tokens of each.
        """
        names = [next(self._names) for _ in prompts]
        lengths = [len(ids) for ids in prompts]
        running: dict[int, Iterator[Round]] = {}
        for row, ids in enumerate(prompts):
            self._writer.request(names[row], prompt_digest=ids_digest(ids), prompt_ids=list(ids))
            running[row] = decoders[row].rounds(ids, limit)
        for number in itertools.count():
            for row in list(running):
                done = next(running[row], None)
                if done is None:
                    del running[row]
                    continue
                draft = decoders[row].draft
                fields = step_fields(
                    done, decoders[row].sampler, draft.vocab.table, draft.taps.boundaries, self._top
                )
                where = {"batch_row": row, "engine_step": number, "max_batch_length": max(lengths)}
                self._writer.step({"request": names[row], **fields, **where})
                lengths[row] += len(done.emitted)
            if not running:
                return


def batch(rig: Rig, out: Path, broken_from: int | None) -> None:
    """Records batches in which the rows from one on have a fault, or none."""
    decoders = [Eagle3Decoder(shared_target(), rig.draft(), Chain(4), eos_ids=[rig.eos]) for _ in range(ROWS)]
    prompts = prompts_of(rig.seed, 3 * ROWS)
    make = DraftRows

    def rows_of(head: Any, *args: Any) -> DraftRows:
        row = next(at for at, decoder in enumerate(decoders) if decoder.draft.head is head)
        broken = broken_from is not None and row >= broken_from
        return (NoisyRows if broken else make)(head, *args)

    with (
        swapped(loop, DraftRows=rows_of),
        closing(BatchRecorder(out, decoders[0], tokenizer=tokenizer(), strict=True)) as recorder,
    ):
        for first in range(0, len(prompts), ROWS):
            recorder.batch(decoders, prompts[first : first + ROWS], 64)
    for decoder in decoders:
        decoder.close()


# --- what is counted and printed -------------------------------------------------------------------


class Counting(Eagle3Decoder):
    """Counts as a server's metrics do."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.accepted: list[int] = []
        self.of_requests: list[float] = []

    def rounds(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Iterator[Round]:
        """As ever."""
        first = len(self.accepted)
        for done in super().rounds(prompt_ids, max_new_tokens):
            if done.proposal is not None:
                self.accepted.append(min(len(done.decision.path), len(done.emitted)))
            yield done
        own = self.accepted[first:]
        if own:
            self.of_requests.append(1 + sum(own) / len(own))


def printed(formula: Callable[[Counting], float]) -> Callable[[Rig, Path], None]:
    """A recording whose engine prints an accept length by its own formula."""

    def record(rig: Rig, out: Path) -> None:
        made: list[Counting] = []

        def make(*args: Any, **options: Any) -> Counting:
            made.append(Counting(*args, **options))
            return made[0]

        rig.eagle3(
            out,
            decoder=make,
            finish=lambda recorder: recorder.amend(reported={"accept_length": round(formula(made[0]), 3)}),
        )

    return record


def without_bonus(counts: Counting) -> float:
    """Accepted / proposals."""
    return sum(counts.accepted) / len(counts.accepted)


def mean_of_requests(counts: Counting) -> float:
    """Short requests weigh as much as long ones."""
    return sum(counts.of_requests) / len(counts.of_requests)


def pooled(counts: Counting) -> float:
    """The usual formula."""
    return 1 + without_bonus(counts)


def own_token_counted(_decoder: Eagle3Decoder, fields: dict[str, Any]) -> Fields:
    """The engine's count of accepted tokens holds the target's own."""
    return {"num_accepted_reported": fields["num_accepted"] + 1} if fields["proposal_ids"] else {}


class Remembering(Eagle3Decoder):
    """Keeps its last round."""

    last: Round

    def rounds(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Iterator[Round]:
        """As ever."""
        for self.last in super().rounds(prompt_ids, max_new_tokens):
            yield self.last


def raw_logprobs(decoder: Any, fields: dict[str, Any]) -> Fields:
    """The engine hands out log-probabilities from before the temperature."""
    if not fields["proposal_ids"]:
        return {}
    logprobs = decoder.last.logits.log_softmax(-1)  # [K+1, vocab_size]
    ids = fields["emitted_ids"]
    return {"reported_logprobs": [float(logprobs[place, token]) for place, token in enumerate(ids)]}


# --- uptime ----------------------------------------------------------------------------------------


class Slow:
    """A clock of a slow server: every look at it costs three seconds."""

    def __init__(self) -> None:
        self._now = time.monotonic_ns()

    def monotonic_ns(self) -> int:
        """Nanoseconds."""
        self._now += 3_000_000_000
        return self._now


def uptime(rig: Rig, out: Path, decay: float) -> None:
    """Records a long day, in which the draft's LM head loses a little with every step, or not."""
    draft, noise = rig.draft(), torch.Generator().manual_seed(rig.seed)
    weight = draft.head.lm_head.weight

    class Decaying(DraftRows):
        def begin(self, *args: Any) -> None:
            weight.add_(torch.randn(weight.shape, generator=noise) * decay)
            super().begin(*args)

    with swapped(loop, time=SimpleNamespace(monotonic_ns=Slow().monotonic_ns), DraftRows=Decaying):
        rig.eagle3(out, draft=draft, prompts=prompts_of(rig.seed, 32), new_tokens=80)


# --- text and types --------------------------------------------------------------------------------


class Endless(Sampler):
    """Greedy, and never at an end."""

    def processed(self, logits: Tensor) -> Tensor:
        """[n, vocab_size] with the special tokens ruled out."""
        endless = logits.clone()
        endless[:, :3] = float("-inf")
        return endless


def repetition(rig: Rig, out: Path) -> None:
    """One question and its answer four times over, and an answer that must not end."""
    chosen = random.Random(rig.seed).sample(FACTS, 8)
    texts = [f"Question: {question}\nAnswer: {answer}.\n" * 4 for question, answer in chosen]
    prompts = [tokenizer()(text).input_ids for text in texts]
    rig.eagle3(out, prompts=prompts, sampler=Endless(), new_tokens=240, ends=False)


def in_half(num_draft_tokens: int) -> Callable[[Rig, Path], None]:
    """A recording of the target in bfloat16."""

    def record(rig: Rig, out: Path) -> None:
        target = shared_target("bfloat16")
        rig.eagle3(out, target=target, plan=Chain(num_draft_tokens), prompts=prompts_of(rig.seed, 20))

    return record


def sampled(rig: Rig, out: Path, **options: Any) -> None:
    """Records sampled chains."""
    rig.eagle3(out, sampler=Sampler(TEMPERATURE, seed=rig.seed), **options)
