"""A request as vLLM's scheduler admits it, in the words of a trace: name, limits, how tokens are picked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from spectrace_serving.requests import Started, processors

_GREEDY = 1e-5
"""Temperature below which vLLM is greedy. Source: vLLM 0.32.0 v1/sample/sampler.py, ``_SAMPLING_EPS``."""
_CONSTRAINTS = ("logit_bias", "bad_words", "allowed_token_ids", "structured_outputs")


def started_request(new: Any) -> Started:
    """What the writer's thread needs of a request.

    Args:
        new: vLLM's NewRequestData.
    """
    sampling = new.sampling_params
    return Started(
        request=new.req_id,
        prefix_hit_length=new.num_computed_tokens,
        is_greedy=sampling.temperature < _GREEDY,
        stop_ids=frozenset(_stop_ids(sampling)),
        max_tokens=sampling.max_tokens,
    )


def sampling_facts(sampling: Any) -> dict[str, Any]:
    """How tokens are picked, from vLLM's SamplingParams."""
    return {
        "temperature": 0.0 if sampling.temperature < _GREEDY else float(sampling.temperature),
        "top_k": sampling.top_k if sampling.top_k > 0 else None,
        "top_p": float(sampling.top_p),
        "seed": sampling.seed,
        "processors": processors(sampling, *_CONSTRAINTS),
    }


def external_name(request: str) -> str:
    """A request's name as its caller knows it: without the eight digits that vLLM appends.

    >>> external_name("cmpl-7-0-bb0b1308"), external_name("mine")
    ('cmpl-7-0', 'mine')
    """
    return re.sub(r"-[0-9a-f]{8}$", "", request)


def _stop_ids(sampling: Any) -> Iterator[int]:
    """Tokens after which vLLM stops."""
    yield from sampling.stop_token_ids or ()
    if not sampling.ignore_eos:
        eos = getattr(sampling, "eos_token_id", None)
        if eos is not None:
            yield eos
