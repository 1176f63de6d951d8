"""A request in a serving engine: what is known when it comes, and how far it has come.

Knows how schedulers cut what was sampled, token by token; knows no tensor and no engine's class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A request that the scheduler has admitted."""

    request: str
    prefix_hit_length: int
    """Tokens of the prompt found in a cache."""
    is_greedy: bool
    stop_ids: frozenset[int]
    """Tokens that end the text."""
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class Finished:
    """Requests that the scheduler has let go of."""

    requests: Sequence[str]


def processors(sampling: Any, *constraints: str) -> list[str]:
    """What changes the logits of a request.

    Args:
        sampling: how its tokens are picked, as the engine holds it.
        constraints: names of what else may be asked for there.
    """
    usual = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "min_p": 0.0}
    found = [name for name, value in usual.items() if getattr(sampling, name, value) != value]
    return found + [name for name in constraints if getattr(sampling, name, None)]


@dataclass(slots=True)
class Progress:
    """A request between its steps."""

    facts: Started
    num_steps: int = 0
    num_emitted: int = 0
    is_over: bool = False

    def committed(
        self, position: int, sampled: list[int], max_length: int | None
    ) -> tuple[list[int], str | None]:
        """What the scheduler keeps, and why the text ends there.

        Source: vLLM 0.32.0 vllm/v1/core/sched/utils.py, ``check_stop``, called token by token; SGLang 0.5.23
        srt/managers/schedule_batch.py, ``Req.update_finish_state``, which keeps the same tokens.

        Args:
            position: committed length before the step.
            sampled: what the engine accepted and added.
            max_length: of a text with its prompt; None for no limit.
        """
        facts = self.facts
        limits = []
        if max_length is not None:
            limits.append(max_length - position)
        if facts.max_tokens is not None:
            limits.append(facts.max_tokens - self.num_emitted)
        for at, token in enumerate(sampled, 1):
            if token in facts.stop_ids:
                return sampled[:at], "eos"
            if any(at >= limit for limit in limits):
                return sampled[:at], "length"
        return sampled, None

    def advance(self, emitted: Sequence[int], stop: str | None) -> None:
        """A step is over."""
        self.num_steps += 1
        self.num_emitted += len(emitted)
        self.is_over = stop is not None
