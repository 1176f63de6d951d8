"""The first divergent steps, as a table: where the target refused a draft token, and what it wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spectrace.analysis.alternatives import rank_words
from spectrace.analysis.rejection import item, node_states, rejected_state
from spectrace.format.figures import number

if TYPE_CHECKING:
    from spectrace.format.reader import Trace
    from spectrace.format.records import Step

MAX_STEPS = 20
_HEADS = (
    "step",
    "request",
    "position",
    "accepted",
    "refused at",
    "draft log q",
    "log p",
    "rank",
    "gap",
    "ended by",
)


def divergent_rows(trace: Trace, limit: int = MAX_STEPS) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table; draft and target tokens are in it where the trace has them."""
    found: list[tuple[int, Step]] = []
    at = trace.find_rejected(0)
    while at is not None and len(found) < limit:
        step = trace.steps.get(at)
        if step is not None:
            found.append((at, step))
        at = trace.find_rejected(at + 1)
    has_ids = any(id_ is not None for _, step in found for id_ in step.proposal_ids)
    heads = [*_HEADS, *(("draft token", "target's token") if has_ids else ())]
    return heads, [_row(trace, at, step, has_ids) for at, step in found]


def _row(trace: Trace, at: int, step: Step, has_ids: bool) -> list[str]:
    states = node_states(step)
    refused = rejected_state(states)
    index = None if refused is None else refused.index
    place = -1 if refused is None else refused.parent + 1
    cells = [
        number(at),
        step.request,
        number(step.position),
        f"{step.num_accepted} of {len(step.proposal_ids)}",
        "-" if refused is None else str(refused.depth),
        _value(step.draft_logprobs, index),
        _value(step.target_logprobs, index),
        "-" if index is None else rank_words(step, index),
        _value(step.target_gaps, place),
        step.final_kind or "-",
    ]
    if has_ids:
        draft = None if refused is None else refused.token_id
        wanted = None if refused is None else refused.wanted_id
        cells += [_token(trace, draft), _token(trace, wanted)]
    return cells


def _value(values: object, index: int | None) -> str:
    found = None if index is None else item(values, index)  # type: ignore[arg-type]
    return number(found)


def _token(trace: Trace, token_id: int | None) -> str:
    if token_id is None:
        return "-"
    text = trace.token_text(token_id)
    return str(token_id) if text is None else f'{token_id} "{text[:60]}"'
