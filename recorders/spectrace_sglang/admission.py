"""A request as SGLang's scheduler holds it, in the words of a trace: name, limits, how tokens are picked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spectrace_serving.requests import Started, processors

_ALL = 1 << 30
"""A top_k that keeps every token. Source: SGLang 0.5.23 srt/sampling/sampling_params.py, ``TOP_K_ALL``."""
_CONSTRAINTS = ("logit_bias", "json_schema", "regex", "ebnf", "structural_tag")


def started_request(request: Any, name: str, prefix_length: int, *, is_always_greedy: bool) -> Started:
    """What the writer's thread needs of a request.

    Args:
        request: SGLang's Req.
        name: in the trace.
        prefix_length: tokens of the prompt found in a cache.
        is_always_greedy: decisions are, whatever the request asks for.
    """
    sampling = request.sampling_params
    return Started(
        request=name,
        prefix_hit_length=prefix_length,
        is_greedy=is_always_greedy or is_greedy(sampling),
        stop_ids=frozenset(_stop_ids(request)),
        max_tokens=sampling.max_new_tokens,
    )


def is_greedy(sampling: Any) -> bool:
    """Whether a request takes the first choice: SGLang writes a temperature of 0 as a top_k of 1."""
    return bool(sampling.top_k == 1)


def sampling_facts(sampling: Any) -> dict[str, Any]:
    """How tokens are picked, from SGLang's SamplingParams."""
    greedy = is_greedy(sampling)
    return {
        "temperature": 0.0 if greedy else float(sampling.temperature),
        "top_k": sampling.top_k if not greedy and sampling.top_k < _ALL else None,
        "top_p": float(sampling.top_p),
        "seed": getattr(sampling, "sampling_seed", None),
        "processors": processors(sampling, *_CONSTRAINTS),
    }


def _stop_ids(request: Any) -> Iterator[int]:
    """Tokens after which SGLang stops.

    Source: SGLang 0.5.23 srt/managers/schedule_batch.py, ``Req._check_token_based_finish``.
    """
    sampling, tokenizer = request.sampling_params, getattr(request, "tokenizer", None)
    if sampling.ignore_eos:
        return
    yield from sampling.stop_token_ids or ()
    yield from getattr(request, "eos_token_ids", None) or ()
    eos = getattr(tokenizer, "eos_token_id", None)
    if eos is not None:
        yield eos
    yield from getattr(tokenizer, "additional_stop_token_ids", None) or ()
