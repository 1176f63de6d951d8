"""The figures of README.md: how far the draft agrees with the target on the held-out prompts.

Owns one plain count of what transformers' assisted decoding and prompt lookup do. It reads the
emitted tokens from a streamer and the proposals from `draft.generate`; spectrace's own recorder has
no part in it, so that the two can be compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation.streamers import BaseStreamer

from spectrace_demo.world import HELD_OUT_PROMPTS

NEW_TOKENS = 96


class _Emitted(BaseStreamer):
    """Keeps what generation hands out: the prompt first, then the tokens of one step at a time."""

    def __init__(self) -> None:
        self.chunks: list[list[int]] = []

    def put(self, value: torch.Tensor) -> None:
        self.chunks.append(value.flatten().tolist())

    def end(self) -> None:
        """Nothing to close."""


def measure(folder: Path) -> str:
    """Return the figures of the models in `folder` as Markdown, with a sample of the text."""
    target = AutoModelForCausalLM.from_pretrained(folder / "target")
    draft = AutoModelForCausalLM.from_pretrained(folder / "draft")
    tokenizer = AutoTokenizer.from_pretrained(folder / "target")
    rows, texts = [], []
    for prompt in HELD_OUT_PROMPTS:
        inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        steps, text_ids = _assisted_steps(target, draft, inputs)
        lookup = _emitted(
            target, inputs, prompt_lookup_num_tokens=draft.generation_config.num_assistant_tokens
        )
        rows.append((prompt, steps, [len(chunk) for chunk in lookup]))
        texts.append(tokenizer.decode(text_ids, skip_special_tokens=True))
    return "\n".join([*_table(rows), "", *(f"```text\n{text}\n```\n" for text in texts)])


def _emitted(target: Any, inputs: Any, **options: Any) -> list[list[int]]:
    """Run greedy generation and return the tokens of each step."""
    streamer = _Emitted()
    target.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False, streamer=streamer, **options)
    return streamer.chunks[1:]


def _assisted_steps(target: Any, draft: Any, inputs: Any) -> tuple[list[tuple[int, int]], list[int]]:
    """Return (drafted, accepted) of every step that drafted something, and all ids of the text."""
    proposals: list[list[int]] = []
    generate = draft.generate

    def generate_and_note(*args: Any, **kwargs: Any) -> Any:
        output = generate(*args, **kwargs)
        proposals.append(output.sequences[0, kwargs["input_ids"].shape[1] :].tolist())
        return output

    draft.generate = generate_and_note
    try:
        emitted = _emitted(target, inputs, assistant_model=draft)
    finally:
        del draft.generate
    # The last step of a full budget drafts nothing, so there may be one chunk more than proposals.
    steps = [(len(ids), _matching(ids, chunk)) for ids, chunk in zip(proposals, emitted, strict=False)]
    return steps, inputs["input_ids"][0].tolist() + [token for chunk in emitted for token in chunk]


def _matching(first: list[int], second: list[int]) -> int:
    """Count equal tokens from the left."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))


def _table(rows: list[tuple[str, list[tuple[int, int]], list[int]]]) -> list[str]:
    """One line per prompt and one for all of them together."""
    rows = [
        *rows,
        ("all prompts", [s for row in rows for s in row[1]], [n for row in rows for n in row[2]]),
    ]
    lines = [
        "| prompt | steps | alpha1 | mean accepted of 5 | accept length | with prompt lookup |",
        "|---|---|---|---|---|---|",
    ]
    for prompt, steps, lookup in rows:
        alpha1 = sum(accepted > 0 for _, accepted in steps) / len(steps)
        mean = sum(accepted for _, accepted in steps) / len(steps)
        label = prompt.strip().replace("\n", " / ")
        looked_up = sum(lookup) / len(lookup)
        figures = " | ".join(f"{value:.2f}" for value in (alpha1, mean, 1 + mean, looked_up))
        lines.append(f"| {label} | {len(steps)} | {figures} |")
    return lines
