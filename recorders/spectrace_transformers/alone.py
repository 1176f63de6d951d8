"""Plain generation as a trace: the control without a draft.

One step per token, each without a proposal, with the target's first choices. The text is what a lossless run
with a draft must reproduce; its time per token is the baseline of every speed-up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LogitsProcessor

from spectrace.format.headers import deep_merge
from spectrace.format.writer import TraceWriter
from spectrace_transformers import facts
from spectrace_transformers.baseline import Output, token_ns
from spectrace_transformers.token_text import Vocabulary

TOP = 5
"""Choices of the target kept per token."""


class Choices(LogitsProcessor):
    """Keeps the target's first choices at each token and changes nothing."""

    def __init__(self) -> None:
        self.rows: list[tuple[list[int], list[float], float]] = []
        """Ids, log-probabilities, and how far the first is ahead of the second in logits."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Takes the scores [1, vocab_size] of one token, after the processors of the run."""
        own = scores[0].float()
        best, ids = own.topk(min(TOP, own.numel()))
        logprobs = best - own.logsumexp(-1)
        gap = float(best[0] - best[1]) if len(best) > 1 else 0.0
        self.rows.append((ids.tolist(), logprobs.tolist(), gap))
        return scores


def write_alone(
    out: Path,
    model: Any,
    tokenizer: Any,
    outputs: Sequence[Output],
    choices: Sequence[Choices],
    run: Mapping[str, Any],
) -> None:
    """Writes a trace of generation without speculation.

    Args:
        out: trace to write.
        model: the target.
        tokenizer: source of token texts.
        outputs: what was generated from each prompt.
        choices: the target's choices beside it.
        run: header facts known to the caller.
    """
    vocabulary = Vocabulary(tokenizer)
    head = facts.start_facts(model, (), is_text_captured=True)
    ends = facts.eos_ids(model.generation_config)
    own = {
        "tokenizer": {
            "eos_ids": sorted(ends) or None,
            "vocab_size": len(vocabulary),
            "digest": vocabulary.digest,
        }
    }
    header = deep_merge(deep_merge(head, own), dict(run))
    with TraceWriter(out, header, token_text=lambda _, token_id: vocabulary.text(token_id)) as writer:
        for number, (output, seen) in enumerate(zip(outputs, choices, strict=True)):
            request = f"r{number}"
            writer.request(
                request,
                prompt_ids=list(output.prompt_ids),
                prompt_digest=facts.ids_digest(output.prompt_ids),
            )
            for step, fields in enumerate(_steps(output, seen, ends)):
                writer.step({"request": request, "step": step, **fields})
        writer.amend(baseline={"token_ns": token_ns(outputs)})


def _steps(output: Output, seen: Choices, ends: frozenset[int]) -> list[dict[str, Any]]:
    """One step per token."""
    steps = []
    for at, token in enumerate(output.new_ids):
        is_last = at == len(output.new_ids) - 1
        step: dict[str, Any] = {
            "position": len(output.prompt_ids) + at,
            "proposal_ids": [],
            "num_accepted": 0,
            "emitted_ids": [token],
            "final_kind": "none",
        }
        if at < len(seen.rows):
            ids, logprobs, gap = seen.rows[at]
            step |= {
                "target_ids": [ids[0]],
                "target_top": [list(map(list, zip(ids, logprobs)))],
                "target_gaps": [gap],
                "logits_kind": "processed",
            }
        if at and at < len(output.times_ns):
            step["step_ns"] = output.times_ns[at] - output.times_ns[at - 1]
        if is_last:
            step["stop"] = "eos" if token in ends else "length"
        steps.append(step)
    return steps
