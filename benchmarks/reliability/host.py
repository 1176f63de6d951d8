"""The program that is recorded: generates with the bundled models, and tells what it did.

It tells it in a file, line by line as it happens, so that a killed one has told it too. Breaks nothing
itself.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteria

import spectrace_demo
import spectrace_transformers
from spectrace_eagle3 import Chain, Eagle3Decoder, Eagle3Recorder, load_draft

NEW_TOKENS = 160
"""Of the one prompt: some eighty steps."""
FAULT_AT = 30
"""Step behind which most faults come."""
TRACE = "run.spectrace"
TOLD = "told.jsonl"
ERRORS = "errors.txt"


@cache
def target() -> Any:
    """The bundled target."""
    return _load(spectrace_demo.target_path())


@cache
def draft() -> Any:
    """The bundled draft, with five tokens in every proposal."""
    model = _load(spectrace_demo.draft_path())
    model.generation_config.num_assistant_tokens = 5
    model.generation_config.num_assistant_tokens_schedule = "constant"
    model.generation_config.assistant_confidence_threshold = 0.0
    return model


@cache
def tokenizer() -> Any:
    """The tokenizer of both."""
    return AutoTokenizer.from_pretrained(spectrace_demo.target_path())


def _load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def prompt() -> Any:
    """Ids [1, prompt length] of the prompt."""
    return tokenizer()(spectrace_demo.prompts()[0], return_tensors="pt").input_ids


def assisted(model: Any, **options: Any) -> list[int]:
    """Greedy generation with the draft, as any host would call it; the new tokens."""
    ids = prompt()
    options = {"assistant_model": draft(), "do_sample": False, "max_new_tokens": NEW_TOKENS, **options}
    found: list[int] = model.generate(ids, **options)[0, ids.shape[1] :].tolist()
    return found


class Host:
    """A process that generates, and is recorded.

    Args:
        folder: where its trace and what it tells go.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / TRACE
        self._told = os.open(folder / TOLD, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._calls = itertools.count()

    def tell(self, what: str, value: Any) -> None:
        """Notes one thing, in a way that outlives any end of this process."""
        os.write(self._told, f"{json.dumps([what, value])}\n".encode())

    def record(self, path: Path | None = None, **options: Any) -> Any:
        """A recorder of the target, with its defaults."""
        return spectrace_transformers.record(
            path or self.path, options.pop("model", target()), tokenizer=tokenizer(), **options
        )

    def generate(self, at: Mapping[int, Callable[[], object]] | None = None, **options: Any) -> None:
        """Generates once and tells every step and the output.

        Args:
            at: what happens behind a step, by the number of steps done.
            options: of `generate`.
        """
        watch = Watch(self, next(self._calls), dict(at or {}))
        output = assisted(target(), stopping_criteria=[watch], **options)
        self.tell("output", output)

    def eagle3(self, at: Mapping[int, Callable[[], object]] | None = None) -> None:
        """The same with the EAGLE-3 head, through its own recorder."""
        watch = Watch(self, next(self._calls), dict(at or {}))
        done: list[int] = []

        def emitted(new: Any) -> None:
            done.extend(new)
            watch.saw(list(done))

        self.tell("expected", expected_eagle3())
        with _decoder() as decoder, Eagle3Recorder(self.path, decoder, tokenizer=tokenizer()) as recorder:
            ids = prompt()[0].tolist()
            self.tell("output", recorder.generate(ids, NEW_TOKENS, on_emitted=emitted))


class Watch(StoppingCriteria):
    """Stops nothing: counts the steps of one call, as `generate` asks after each, and lets faults happen."""

    def __init__(self, host: Host, call: int, at: dict[int, Callable[[], object]]) -> None:
        self._host = host
        self._call = call
        self._at = at
        self._steps = self._num_tokens = 0
        self._prompt_length = prompt().shape[1]

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Takes the ids [1, length] behind a step."""
        self.saw(input_ids[0, self._prompt_length :].tolist())
        return torch.zeros(1, dtype=torch.bool)

    def saw(self, new_ids: list[int]) -> None:
        """Takes the tokens of this call so far."""
        self._steps += 1
        self._host.tell("step", [self._call, new_ids[self._num_tokens :]])
        self._num_tokens = len(new_ids)
        if self._steps in self._at:
            self._at[self._steps]()


@cache
def expected() -> list[int]:
    """What is generated without a recorder."""
    return assisted(target())


def expected_eagle3() -> list[int]:
    """The same, drafted by the EAGLE-3 head."""
    with _decoder() as decoder:
        ids = prompt()[0].tolist()
        return [token for done in decoder.rounds(ids, NEW_TOKENS) for token in done.emitted]


def _decoder() -> Eagle3Decoder:
    head = load_draft(spectrace_demo.eagle3_path(), target())
    return Eagle3Decoder(target(), head, Chain(5), eos_ids=[target().generation_config.eos_token_id])
