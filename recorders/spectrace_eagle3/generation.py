"""What `spectrace record` runs for an EAGLE-3 draft: load both from local folders, generate, record.

Has the signature of `spectrace_transformers.generation.generate`, whose loading and comparison it shares.
It prints nothing and never reaches for the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spectrace.errors import UsageError
from spectrace.format.replacing import in_place_of
from spectrace_eagle3.decoder import Eagle3Decoder, generate_alone
from spectrace_eagle3.draft import load_draft
from spectrace_eagle3.recorder import Eagle3Recorder
from spectrace_eagle3.sampling import Sampler
from spectrace_eagle3.states import states_path
from spectrace_eagle3.tree import Chain, DynamicTree
from spectrace_transformers.baseline import Output, compared, token_ns
from spectrace_transformers.loading import be_quiet, encode, load_model, load_tokenizer

NUM_DRAFT_TOKENS = 5


def generate(
    out: Path,
    prompts: Sequence[str],
    *,
    target: Path,
    draft: Path | None = None,
    prompt_lookup: int | None = None,
    early_exit: int | None = None,
    num_draft_tokens: int | None = None,
    max_new_tokens: int = 128,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    dtype: str = "auto",
    device: str | None = None,
    chat: bool = False,
    compare_baseline: bool = False,
    control: str | None = None,
    overwrite: bool = False,
    reference: bool = False,
    states: int = 0,
    tree: tuple[int, int, int] | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Generates from every prompt with an EAGLE-3 draft and records it.

    Args:
        out: trace to write.
        prompts: texts, one request each.
        target: folder of the target.
        draft: folder of the EAGLE-3 checkpoint.
        prompt_lookup: not for this engine.
        early_exit: not for this engine.
        num_draft_tokens: tokens of every chain, 5 by default.
        max_new_tokens: per prompt.
        temperature: 0 is greedy.
        top_k: keep only this many choices of the target; None keeps all.
        top_p: keep only the choices that hold this much probability; None keeps all.
        seed: of the sampling.
        dtype: auto (as the target's checkpoint says), or a torch dtype's name.
        device: a torch device; a GPU where there is one by default.
        chat: wrap each prompt in the target's chat template.
        compare_baseline: also run without speculation; times and, when greedy, tokens are compared and the
            result is stored as the run's ``baseline``.
        control: the kind of control run this is, for the header.
        overwrite: replace ``out``, once the models are loaded.
        reference: also record one plain forward of the target over each prompt and its output.
        states: steps, from the first, whose raw states are written beside the trace.
        tree: draft a dynamic tree of (topk, depth, nodes) instead of a chain.
        on_progress: told how many tokens have been generated, of ``max_new_tokens`` per prompt and run.

    Raises:
        UsageError: no draft is given.
        CheckpointError: the draft cannot be read, or does not fit the target.
        UnsupportedEngine: a model cannot be loaded, or there is no such device.
    """
    if draft is None or prompt_lookup is not None or early_exit is not None:
        raise UsageError("eagle3: give an EAGLE-3 checkpoint with --draft")
    be_quiet()
    model, tokenizer = load_model(target, dtype, device), load_tokenizer(target)
    head = load_draft(draft, model)
    plan = Chain(num_draft_tokens or NUM_DRAFT_TOKENS) if tree is None else DynamicTree(*tree)
    inputs = [encode(model, tokenizer, prompt, chat=chat)["input_ids"][0].tolist() for prompt in prompts]
    eos_ids = _eos_ids(model)
    watch = _Watch(on_progress, max_new_tokens)
    plain: list[Output] = []
    sampler = Sampler(temperature, top_k, top_p, seed)
    if compare_baseline:
        alone = Sampler(temperature, top_k, top_p, seed)
        for ids in inputs:
            new_ids = generate_alone(
                model, ids, max_new_tokens, eos_ids, sampler=alone, on_emitted=watch.begin()
            )
            plain.append(Output(ids, new_ids, watch.times_ns))
    outputs: list[Output] = []
    with (
        in_place_of(out, states_path(out), overwrite=overwrite),
        Eagle3Decoder(model, head, plan, sampler=sampler, eos_ids=eos_ids) as decoder,
        Eagle3Recorder(
            out,
            decoder,
            tokenizer=tokenizer,
            states=states,
            run=None if control is None else {"control": control},
        ) as recorder,
    ):
        for ids in inputs:
            new_ids = recorder.generate(ids, max_new_tokens, reference=reference, on_emitted=watch.begin())
            outputs.append(Output(ids, new_ids))
        if compare_baseline:
            found = compared(model, outputs, plain) if temperature == 0 else {}
            recorder.amend(baseline={"token_ns": token_ns(plain), **found})
    watch.end()


def _eos_ids(model: Any) -> list[int]:
    """What ends a text, as `generate` of transformers would see it."""
    ids = model.generation_config.eos_token_id
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


class _Watch:
    """Counts tokens over all prompts and runs, and notes when those of a prompt come."""

    def __init__(self, on_progress: Callable[[int], None], limit: int) -> None:
        self._on_progress = on_progress
        self._limit = limit
        self._texts = 0
        self.times_ns: list[int] = []

    def begin(self) -> Callable[[Sequence[int]], None]:
        """A new prompt; whatever the one before left unused counts as done."""
        self.end()
        self._texts += 1
        self.times_ns = []
        return self._emitted

    def end(self) -> None:
        """All prompts so far are done."""
        self._on_progress(self._texts * self._limit)

    def _emitted(self, ids: Sequence[int]) -> None:
        self.times_ns += [time.monotonic_ns()] * len(ids)
        self._on_progress((self._texts - 1) * self._limit + len(self.times_ns))
