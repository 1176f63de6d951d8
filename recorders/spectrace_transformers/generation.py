"""What `spectrace record` runs: load models from local folders, generate with speculation, record it.

Owns loading, the generation loop and the comparison with plain generation. Everything it finds goes into
the trace (`run.baseline` for the comparison); it prints nothing and never reaches for the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation.streamers import BaseStreamer
from transformers.utils import logging as transformers_logging

import spectrace_transformers
from spectrace.errors import UnsupportedEngine


@dataclass(slots=True, kw_only=True)
class _Models:
    target: Any
    tokenizer: Any
    draft: Any = None
    draft_tokenizer: Any = None
    """Only where it differs from the target's."""


@dataclass(slots=True)
class _Output:
    """One prompt and what was generated from it."""

    prompt_ids: list[int]
    new_ids: list[int]
    times_ns: list[int] = field(default_factory=list)
    """When each new token came; monotonic clock."""


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
        overwrite: replace ``out``, once the models are loaded.
        on_progress: told how many tokens have been generated, of ``max_new_tokens`` per prompt and run.

    Raises:
        UnsupportedEngine: a model cannot be loaded, or there is no such device.
    """
    models = _load(target, draft, dtype, device)
    if num_draft_tokens is not None:
        _fix_proposals(models.draft or models.target, num_draft_tokens)
    options = _sampling(temperature, top_k, top_p) | {"max_new_tokens": max_new_tokens}
    speculation = _speculation(models, prompt_lookup, early_exit)
    inputs = [_encoded(models, prompt, chat=chat) for prompt in prompts]
    plain: list[_Output] = []
    if compare_baseline:
        plain = _run(models, inputs, options, seed, on_progress)
    done = len(plain) * max_new_tokens
    if overwrite:
        out.unlink(missing_ok=True)
    with spectrace_transformers.record(
        out,
        models.target,
        tokenizer=models.tokenizer,
        assistant_tokenizer=models.draft_tokenizer,
        run={"sampling": {"seed": seed}},
    ) as recorder:
        outputs = _run(models, inputs, options | speculation, seed, lambda tokens: on_progress(done + tokens))
        if compare_baseline:
            compared = _compared(models, outputs, plain) if temperature == 0 else {}
            recorder.amend(baseline={"token_ns": _token_ns(plain), **compared})


# --- loading ---------------------------------------------------------------------------------------


def _load(target: Path, draft: Path | None, dtype: str, device: str | None) -> _Models:
    # The terminal belongs to the command: its own bar, and no hints about calls nobody here wrote.
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    models = _Models(target=_model(target, dtype, place), tokenizer=_tokenizer(target))
    if draft is not None:
        models.draft = _model(draft, dtype, place)
        if _has_tokenizer(draft):
            tokenizer = _tokenizer(draft)
            if tokenizer.get_vocab() != models.tokenizer.get_vocab():
                models.draft_tokenizer = tokenizer
    return models


def _model(folder: Path, dtype: str, device: str) -> Any:
    kind = dtype if dtype == "auto" else getattr(torch, dtype)
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=kind, local_files_only=True)
        return model.eval().to(device)
    except Exception as error:
        raise UnsupportedEngine("transformers", f"{folder} cannot be loaded: {_brief(error)}") from error


def _tokenizer(folder: Path) -> Any:
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        what = f"the tokenizer in {folder} cannot be loaded: {_brief(error)}"
        raise UnsupportedEngine("transformers", what) from error


def _has_tokenizer(folder: Path) -> bool:
    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
    return any((folder / name).exists() for name in names)


def _brief(error: BaseException) -> str:
    """What transformers says, which may be a page long, in one line."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 200 else words[:199] + "…"


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


def _encoded(models: _Models, prompt: str, *, chat: bool) -> Any:
    """Token ids and mask of one prompt, [1, prompt length] each."""
    text, special = prompt, True
    if chat:
        message = [{"role": "user", "content": prompt}]
        try:
            text = models.tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        except ValueError as error:
            raise UnsupportedEngine("transformers", f"--chat: {_brief(error)}") from error
        special = False  # the template writes them
    encoded = models.tokenizer(text, return_tensors="pt", add_special_tokens=special)
    if encoded["input_ids"].shape[-1] == 0:
        raise UnsupportedEngine("transformers", "an empty prompt has no token to begin with")
    wanted = {name: encoded[name] for name in ("input_ids", "attention_mask")}
    return {name: values.to(models.target.device) for name, values in wanted.items()}


def _run(
    models: _Models,
    inputs: Sequence[Any],
    options: dict[str, Any],
    seed: int,
    on_progress: Callable[[int], None],
) -> list[_Output]:
    """One run over all prompts, one after the other."""
    torch.manual_seed(seed)
    limit: int = options["max_new_tokens"]
    pad = models.tokenizer.pad_token_id
    outputs = []
    for number, prompt in enumerate(inputs):
        watch = _Watch(on_progress, number * limit)
        options["pad_token_id"] = models.tokenizer.eos_token_id if pad is None else pad
        ids = models.target.generate(**prompt, **options, streamer=watch)[0].tolist()
        length = prompt["input_ids"].shape[-1]
        outputs.append(_Output(ids[:length], ids[length:], watch.times_ns))
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


# --- comparing -------------------------------------------------------------------------------------


def _token_ns(outputs: Sequence[_Output]) -> float | None:
    """Nanoseconds per token without speculation; the first token of a prompt, its prefill, is left out."""
    timed = [output.times_ns for output in outputs if len(output.times_ns) > 1]
    tokens = sum(len(times) - 1 for times in timed)
    return sum(times[-1] - times[0] for times in timed) / tokens if tokens else None


def _compared(models: _Models, outputs: Sequence[_Output], plain: Sequence[_Output]) -> dict[str, Any]:
    """Whether speculation changed greedy output: tokens compared, and the first difference."""
    compared = 0
    for number, (ours, theirs) in enumerate(zip(outputs, plain, strict=True)):
        at = _first_difference(ours.new_ids, theirs.new_ids)
        if at is not None:
            return {
                "compared_tokens": compared + at,
                "difference": {
                    "prompt": number,
                    "token": at,
                    "with_speculation": _at(ours.new_ids, at),
                    "without": _at(theirs.new_ids, at),
                    "logit_gap": _logit_gap(models, ours, theirs, at),
                },
            }
        compared += len(theirs.new_ids)
    return {"compared_tokens": compared, "difference": None}


def _first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    for at in range(max(len(ours), len(theirs))):
        if _at(ours, at) != _at(theirs, at):
            return at
    return None


def _at(ids: Sequence[int], at: int) -> int | None:
    """One id; None where the text ended before."""
    return ids[at] if at < len(ids) else None


def _logit_gap(models: _Models, ours: _Output, theirs: _Output, at: int) -> float | None:
    """How much the target prefers its own token to speculation's, in one forward without speculation.

    Near zero the two were a tie that rounding decided; far from it a wrong token was accepted.
    """
    with_speculation, without = _at(ours.new_ids, at), _at(theirs.new_ids, at)
    if with_speculation is None or without is None:
        return None
    ids = torch.tensor([theirs.prompt_ids + theirs.new_ids[:at]], device=models.target.device)
    with torch.no_grad():
        logits = models.target(input_ids=ids).logits[0, -1].float()  # [vocab_size]
    return float(logits[without] - logits[with_speculation])
