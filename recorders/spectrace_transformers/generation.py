"""What `spectrace record` runs: load models from local folders, generate with speculation, record it.

Owns the runs over the prompts, with and without speculation. Everything it finds goes into the trace
(`run.baseline` for the comparison); it prints nothing and never reaches for the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

import spectrace_transformers
from spectrace.format.replacing import in_place_of
from spectrace_transformers.alone import Choices, write_alone
from spectrace_transformers.baseline import Output, compared, token_ns
from spectrace_transformers.loading import be_quiet, encode, has_tokenizer, load_model, load_tokenizer


@dataclass(slots=True, kw_only=True)
class _Models:
    target: Any
    tokenizer: Any
    draft: Any = None
    draft_tokenizer: Any = None
    """Only where it differs from the target's."""


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
    on_progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Generates from every prompt with speculation and records it.

    Args:
        out: trace to write.
        prompts: texts, one request each.
        target: folder of the target.
        draft: folder of the draft model; or else one of the next two.
        prompt_lookup: propose this many tokens out of the prompt and the text so far.
        early_exit: propose with the target's own first layers, this many.
        num_draft_tokens: tokens of every proposal; without it what the models' generation config says.
        max_new_tokens: per prompt.
        temperature: 0 is greedy.
        top_k: keep only this many choices of the target; None keeps all.
        top_p: keep only the choices that hold this much probability; None keeps all.
        seed: of the sampling, set anew for each run over the prompts.
        dtype: auto (as the checkpoint says), or a torch dtype's name.
        device: a torch device; a GPU where there is one by default.
        chat: wrap each prompt in the target's chat template.
        compare_baseline: also run without speculation; times and, when greedy, tokens are compared and the
            result is stored as the run's ``baseline``.
        control: the kind of control run this is, for the header; ``no-draft`` runs without speculation.
        overwrite: replace ``out``, once the models are loaded.
        on_progress: told how many tokens have been generated, of ``max_new_tokens`` per prompt and run.

    Raises:
        UnsupportedEngine: a model cannot be loaded, or there is no such device.
    """
    models = _load(target, draft, dtype, device)
    if num_draft_tokens is not None:
        _fix_proposals(models.draft or models.target, num_draft_tokens)
    options = _sampling(temperature, top_k, top_p) | {"max_new_tokens": max_new_tokens}
    inputs = [encode(models.target, models.tokenizer, prompt, chat=chat) for prompt in prompts]
    header: dict[str, Any] = {"sampling": {"seed": seed}}
    if control is not None:
        header["control"] = control
    if control == NO_DRAFT:
        _generate_alone(out, models, inputs, options, header, on_progress, overwrite=overwrite)
        return
    speculation = _speculation(models, prompt_lookup, early_exit)
    plain: list[Output] = []
    if compare_baseline:
        plain = _run(models, inputs, options, seed, on_progress)
    done = len(plain) * max_new_tokens
    with (
        in_place_of(out, overwrite=overwrite),
        spectrace_transformers.record(
            out,
            models.target,
            tokenizer=models.tokenizer,
            assistant_tokenizer=models.draft_tokenizer,
            run=header,
        ) as recorder,
    ):
        outputs = _run(models, inputs, options | speculation, seed, lambda tokens: on_progress(done + tokens))
        if compare_baseline:
            found = compared(models.target, outputs, plain) if temperature == 0 else {}
            recorder.amend(baseline={"token_ns": token_ns(plain), **found})


NO_DRAFT = "no-draft"


def _generate_alone(
    out: Path,
    models: _Models,
    inputs: Sequence[Any],
    options: dict[str, Any],
    header: dict[str, Any],
    on_progress: Callable[[int], None],
    *,
    overwrite: bool,
) -> None:
    """The control without a draft: generates, then writes what was generated."""
    choices = [Choices() for _ in inputs]
    seed = header["sampling"]["seed"]
    outputs = _run(models, inputs, options, seed, on_progress, choices)
    if options["do_sample"]:
        header["sampling"] |= {key: options[key] for key in ("temperature", "top_k", "top_p")}
    else:
        header["sampling"]["temperature"] = 0.0
        header["verification"] = {"rule": "greedy", "lossless": True}
    with in_place_of(out, overwrite=overwrite):
        write_alone(out, models.target, models.tokenizer, outputs, choices, header)


# --- loading ---------------------------------------------------------------------------------------


def _load(target: Path, draft: Path | None, dtype: str, device: str | None) -> _Models:
    be_quiet()
    models = _Models(target=load_model(target, dtype, device), tokenizer=load_tokenizer(target))
    if draft is not None:
        models.draft = load_model(draft, dtype, device)
        if has_tokenizer(draft):
            tokenizer = load_tokenizer(draft)
            if tokenizer.get_vocab() != models.tokenizer.get_vocab():
                models.draft_tokenizer = tokenizer
    return models


# --- generating ------------------------------------------------------------------------------------


def _fix_proposals(model: Any, num_draft_tokens: int) -> None:
    """Makes every proposal as long as asked for: no schedule, no threshold of confidence."""
    config = model.generation_config
    config.num_assistant_tokens = num_draft_tokens
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0


def _sampling(temperature: float, top_k: int | None, top_p: float | None) -> dict[str, Any]:
    if temperature == 0:
        return {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
    # 0 and 1.0 switch off what the model's generation config may hold.
    return {"do_sample": True, "temperature": temperature, "top_k": top_k or 0, "top_p": top_p or 1.0}


def _speculation(models: _Models, prompt_lookup: int | None, early_exit: int | None) -> dict[str, Any]:
    if prompt_lookup is not None:
        return {"prompt_lookup_num_tokens": prompt_lookup}
    if early_exit is not None:
        return {"assistant_early_exit": early_exit}
    if models.draft_tokenizer is None:
        return {"assistant_model": models.draft}
    return {
        "assistant_model": models.draft,
        "tokenizer": models.tokenizer,
        "assistant_tokenizer": models.draft_tokenizer,
    }


def _run(
    models: _Models,
    inputs: Sequence[Any],
    options: dict[str, Any],
    seed: int,
    on_progress: Callable[[int], None],
    choices: Sequence[Choices] = (),
) -> list[Output]:
    """One run over all prompts, one after the other; ``choices`` see the target's scores, one each."""
    torch.manual_seed(seed)
    limit: int = options["max_new_tokens"]
    pad = models.tokenizer.pad_token_id
    outputs = []
    for number, prompt in enumerate(inputs):
        watch = _Watch(on_progress, number * limit)
        options["pad_token_id"] = models.tokenizer.eos_token_id if pad is None else pad
        more = {"logits_processor": [choices[number]]} if choices else {}
        ids = models.target.generate(**prompt, **options, **more, streamer=watch)[0].tolist()
        length = prompt["input_ids"].shape[-1]
        outputs.append(Output(ids[:length], ids[length:], watch.times_ns))
        on_progress((number + 1) * limit)
    return outputs


class _Watch(BaseStreamer):
    """Notes when tokens come: `generate` hands over the prompt first, then the tokens of each step."""

    def __init__(self, on_progress: Callable[[int], None], before: int) -> None:
        self.times_ns: list[int] = []
        self._on_progress = on_progress
        self._before = before
        self._has_prompt = False

    def put(self, value: torch.Tensor) -> None:
        """Takes the ids [tokens] of one step."""
        if not self._has_prompt:
            self._has_prompt = True
            return
        self.times_ns += [time.monotonic_ns()] * value.numel()
        self._on_progress(self._before + len(self.times_ns))

    def end(self) -> None:
        """Nothing to close."""
