"""vLLM's ``--per-request-spec-decode-metrics``: responses of its servers, or what an offline run dumped.

``summary`` has a histogram of accepted tokens, ``detailed`` also a list in the order of the steps. Both count
draft tokens after those that a grammar ruled out, never the target's own token.
Source: vLLM 0.32, v1/metrics/stats.py ``RequestSpecDecodeMetrics``, entrypoints/generate/base/protocol.py
``SpeculativeDecodingMetrics``, outputs.py ``CompletionOutput.spec_decode_metrics``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spectrace.importing.counting import Rounds, notes_of, rounds_of_histogram, rounds_of_lists, steps_of
from spectrace.importing.reading import Refused, count, counts, inside, number, optional_count, text
from spectrace.importing.telling import Told

FACTS: Mapping[str, Any] = {"engine": {"name": "vllm"}}


def claims(document: Any) -> bool:
    """Whether a document is vLLM's."""
    return any(True for _ in _metrics(document))


def requests(document: Any) -> Iterator[Told]:
    """The requests that a response, a dumped `RequestOutput` or the metrics alone tell of."""
    for metrics, output in _metrics(document):
        prompt = optional_count(document, "usage", "prompt_tokens")
        completed = optional_count(document, "usage", "completion_tokens")
        ids, own = inside(document, "prompt_token_ids"), inside(output, "token_ids")
        yield told_of_metrics(
            metrics,
            dict(enumerate(counts(_histogram_of(metrics), "acceptance_histogram"))),
            name=text(document, "id") or text(document, "request_id"),
            prompt=len(ids) if prompt is None and isinstance(ids, list) else prompt,
            completed=len(own) if completed is None and isinstance(own, list) else completed,
            facts={"target": {"id": text(document, "model")}},
        )


def _metrics(document: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """The payloads of a document, each with the `CompletionOutput` that it stands in, if any."""
    outputs = inside(document, "outputs")
    found = [(inside(document, "metrics", "speculative_decoding"), None), (document, None)]
    if isinstance(outputs, list):
        found += [(inside(output, "spec_decode_metrics"), output) for output in outputs]
    for item, output in found:
        if isinstance(item, Mapping) and isinstance(_histogram_of(item), list):
            yield item, output


def _histogram_of(metrics: Mapping[str, Any]) -> Any:
    """``acceptance_histogram`` of a response, ``histogram`` of the class itself: steps by accepted tokens."""
    found = metrics.get("acceptance_histogram", metrics.get("histogram"))
    return found if "num_draft_tokens" in metrics else None


def told_of_metrics(
    metrics: Mapping[str, Any],
    histogram: Mapping[int, int],
    *,
    name: str | None,
    prompt: int | None,
    completed: int | None,
    facts: Mapping[str, Mapping[str, Any]],
) -> Told:
    """A request, from the metrics in vLLM's words.

    Args:
        metrics: the payload.
        histogram: steps by accepted tokens.
        name: of the request.
        prompt: tokens of the prompt, where they are known.
        completed: tokens of the answer, where they are known.
        facts: more for the header; what is None in it is left out.

    Raises:
        Refused: the metrics contradict themselves.
    """
    rounds = _rounds(metrics, histogram)
    said = {
        "accept_length": number(metrics, "mean_acceptance_length"),
        "acceptance_rate": number(metrics, "draft_acceptance_rate"),
    }
    reported = {name: value for name, value in said.items() if value is not None}
    speculation = {"num_draft_tokens": optional_count(metrics, "num_spec_tokens")}
    all_facts: dict[str, Mapping[str, Any]] = {"reported": reported, "speculation": speculation, **facts}
    return Told(
        name=name,
        # The prompt's own token was committed before the first round.
        steps=steps_of(rounds, 0 if prompt is None else prompt + 1),
        described={"reported": reported} if reported else {},
        notes=notes_of(rounds, has_prompt=prompt is not None, completed=completed),
        facts={key: value for key, value in all_facts.items() if any(v is not None for v in value.values())},
    )


def _rounds(metrics: Mapping[str, Any], histogram: Mapping[int, int]) -> Rounds:
    num_drafted = count(metrics, "num_draft_tokens")
    num_accepted = sum(a * n for a, n in histogram.items())
    for name, own in (
        ("num_spec_steps", sum(histogram.values())),
        ("num_accepted_draft_tokens", num_accepted),
    ):
        said = optional_count(metrics, name)
        _need_same("acceptance_histogram", own, name, own if said is None else said)
    accepted, drafted = metrics.get("per_step_accepted"), metrics.get("per_step_drafted")
    if not accepted and not drafted:
        return rounds_of_histogram(histogram, num_drafted, optional_count(metrics, "num_spec_tokens"))
    rounds = rounds_of_lists(counts(accepted, "per_step_accepted"), counts(drafted, "per_step_drafted"))
    _need_same("per_step_drafted", sum(rounds.drafted), "num_draft_tokens", num_drafted)
    _need_same("per_step_accepted", sum(rounds.accepted), "acceptance_histogram", num_accepted)
    return rounds


def _need_same(name: str, own: int, other: str, said: int) -> None:
    if own != said:
        raise Refused(f"field {name} comes to {own:,}, {other} says {said:,}")
