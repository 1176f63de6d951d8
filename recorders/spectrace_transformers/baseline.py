"""Generation with speculation beside generation without: time per token, and the first token that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(slots=True)
class Output:
    """One prompt and what was generated from it."""

    prompt_ids: list[int]
    new_ids: list[int]
    times_ns: list[int] = field(default_factory=list)
    """When each new token came; monotonic clock."""


def token_ns(outputs: Sequence[Output]) -> float | None:
    """Nanoseconds per token without speculation; the first token of a prompt, its prefill, is left out."""
    timed = [output.times_ns for output in outputs if len(output.times_ns) > 1]
    tokens = sum(len(times) - 1 for times in timed)
    return sum(times[-1] - times[0] for times in timed) / tokens if tokens else None


def compared(target: Any, outputs: Sequence[Output], plain: Sequence[Output]) -> dict[str, Any]:
    """Whether speculation changed greedy output.

    Args:
        target: the model, which is asked for its logits where they differ.
        outputs: with speculation.
        plain: without, of the same prompts.

    Returns:
        Tokens compared, and the first difference or None.
    """
    num_compared = 0
    for number, (ours, theirs) in enumerate(zip(outputs, plain, strict=True)):
        at = _first_difference(ours.new_ids, theirs.new_ids)
        if at is not None:
            return {
                "compared_tokens": num_compared + at,
                "difference": {
                    "prompt": number,
                    "token": at,
                    "with_speculation": _at(ours.new_ids, at),
                    "without": _at(theirs.new_ids, at),
                    "logit_gap": _logit_gap(target, ours, theirs, at),
                },
            }
        num_compared += len(theirs.new_ids)
    return {"compared_tokens": num_compared, "difference": None}


def _first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    for at in range(max(len(ours), len(theirs))):
        if _at(ours, at) != _at(theirs, at):
            return at
    return None


def _at(ids: Sequence[int], at: int) -> int | None:
    """One id; None where the text ended before."""
    return ids[at] if at < len(ids) else None


def _logit_gap(target: Any, ours: Output, theirs: Output, at: int) -> float | None:
    """How much the target prefers its own token to speculation's, in one forward without speculation.

    Near zero the two were a tie that rounding decided; far from it a wrong token was accepted.
    """
    with_speculation, without = _at(ours.new_ids, at), _at(theirs.new_ids, at)
    if with_speculation is None or without is None:
        return None
    ids = torch.tensor([theirs.prompt_ids + theirs.new_ids[:at]], device=target.device)
    with torch.no_grad():
        logits = target(input_ids=ids).logits[0, -1].float()  # [vocab_size]
    return float(logits[without] - logits[with_speculation])
