"""What a run is made of: the bundled models, prompts of a seed, and the two recorders.

Owns loading and recording. Breaks nothing itself: a fault hands in a changed draft, a changed decoder or
another loop. No recorded number is touched.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

import spectrace_demo
import spectrace_transformers
from spectrace_demo.corpus import iter_documents
from spectrace_eagle3 import Chain, Eagle3Decoder, Eagle3Recorder, Faults, load_draft
from spectrace_eagle3.draft import Draft
from spectrace_eagle3.sampling import Sampler
from spectrace_eagle3.tree import Plan

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_num_threads(1)

NUM_PROMPTS = 16
NEW_TOKENS = 96
ENOUGH_STEPS, ENOUGH_PROMPTS = 230, 8
"""Of a run that accepts little, the last prompts are left out."""
FIRST_SEED = 10_000
"""Documents of these seeds are not those that the models were trained on."""


@contextmanager
def swapped(owner: Any, **values: Any) -> Iterator[None]:
    """Sets attributes of a module, class or object for a while."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@cache
def tokenizer() -> Any:
    """The target's."""
    return AutoTokenizer.from_pretrained(spectrace_demo.target_path())


def load(folder: Path, dtype: str = "float32") -> Any:
    """A model of a folder, afresh."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()


@cache
def shared_target(dtype: str = "float32") -> Any:
    """The bundled target, for every run that leaves it as it is."""
    return load(spectrace_demo.target_path(), dtype)


def prompts_of(seed: int, count: int = NUM_PROMPTS) -> list[list[int]]:
    """Beginnings of documents that no model has seen, as ids: a quarter of each, 8 to 40 tokens."""
    found: dict[tuple[int, ...], None] = {}
    for document in iter_documents(FIRST_SEED + seed):
        ids = tokenizer()(document).input_ids
        found.setdefault(tuple(ids[: min(max(len(ids) // 4, 8), 40)]))
        if len(found) == count:
            return [list(ids) for ids in found]
    raise AssertionError("documents have no end")


class Rig:
    """One run's surroundings.

    Args:
        seed: chooses prompts, and is the seed of the sampling.
        scratch: folder for checkpoints that a run writes.
    """

    def __init__(self, seed: int, scratch: Path) -> None:
        self.seed = seed
        self.scratch = scratch
        self.prompts = prompts_of(seed)
        self.eos = tokenizer().eos_token_id

    def draft(self, folder: Path | None = None, target: Any = None) -> Draft:
        """An EAGLE-3 head, loaded afresh."""
        return load_draft(folder or spectrace_demo.eagle3_path(), target or shared_target())

    def eagle3(
        self,
        out: Path,
        *,
        target: Any = None,
        draft: Draft | None = None,
        plan: Plan = Chain(4),  # noqa: B008  frozen
        sampler: Sampler | None = None,
        temperature: float = 0.0,
        decoder: Callable[..., Eagle3Decoder] = Eagle3Decoder,
        recorder: Callable[..., Eagle3Recorder] = Eagle3Recorder,
        run: Mapping[str, Any] | None = None,
        prompts: Sequence[Sequence[int]] | None = None,
        new_tokens: int = NEW_TOKENS,
        ends: bool = True,
        reference: bool = True,
        finish: Callable[[Eagle3Recorder], None] = lambda recorder: None,
        **faults: Any,
    ) -> None:
        """Records the reference decoder, or a variant of it.

        Args:
            out: trace to write.
            target: the shared one by default.
            draft: the bundled one by default.
            plan: chain or tree.
            sampler: overrides the temperature.
            temperature: 0 is greedy.
            decoder: makes the decoder.
            recorder: makes the recorder.
            run: header facts.
            prompts: ids; those of the seed by default.
            new_tokens: per prompt.
            ends: whether a text ends at its end token.
            reference: whether the first prompt gets a plain forward.
            finish: called before the trace is closed.
            faults: of `spectrace_eagle3.Faults`.
        """
        model = shared_target() if target is None else target
        head = self.draft(target=model) if draft is None else draft
        draws = sampler or Sampler(temperature, seed=self.seed)
        eos = [self.eos] if ends else []
        with (
            decoder(model, head, plan, sampler=draws, eos_ids=eos, faults=Faults(**faults)) as runs,
            recorder(out, runs, tokenizer=tokenizer(), strict=True, run=run) as records,
        ):
            steps: list[int] = []
            for number, ids in enumerate(self.prompts if prompts is None else prompts):
                if prompts is None and number >= ENOUGH_PROMPTS and len(steps) > ENOUGH_STEPS:
                    break
                records.generate(
                    list(ids),
                    new_tokens,
                    reference=reference and number == 0,
                    on_emitted=lambda ids: steps.append(len(ids)),
                )
            finish(records)

    def transformers(
        self,
        out: Path,
        *,
        target: Any = None,
        draft: Any = None,
        num_draft_tokens: int = 5,
        new_tokens: int = NEW_TOKENS,
        num_prompts: int = NUM_PROMPTS,
        run: Mapping[str, Any] | None = None,
        record: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Records `generate` of transformers.

        Args:
            out: trace to write.
            target: the shared one by default.
            draft: draft model; without one, `options` say how to propose.
            num_draft_tokens: of every proposal of a draft model.
            new_tokens: per prompt.
            num_prompts: of the seed's.
            run: header facts.
            record: further arguments of the recorder.
            options: of `generate`.
        """
        model = shared_target() if target is None else target
        if draft is not None:
            config = draft.generation_config
            config.num_assistant_tokens = num_draft_tokens
            config.num_assistant_tokens_schedule = "constant"
            options = {"assistant_model": draft, **options}
        options = {"do_sample": False, "pad_token_id": self.eos, **options}
        torch.manual_seed(self.seed)
        with spectrace_transformers.record(
            out, model, tokenizer=tokenizer(), strict=True, run=run, **(record or {})
        ):
            for ids in self.prompts[:num_prompts]:
                model.generate(torch.tensor([ids]), max_new_tokens=new_tokens, **options)


def batches(count: int, size: int) -> Iterator[range]:
    """Indices 0..count in groups."""
    for first in itertools.count(0, size):
        if first >= count:
            return
        yield range(first, min(first + size, count))
