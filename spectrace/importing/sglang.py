"""SGLang's ``meta_info``, and the dump of a DSpark server (``SGLANG_DSPARK_DEBUG_DUMP=core,reqs``).

``meta_info`` has a histogram: its `spec_num_proposed_drafts` counts the nodes of a tree as well, and its
`spec_accept_length` is completion tokens per verification. The dump has every round of every request.
Source: SGLang 0.5.23, srt/managers/tokenizer_manager.py ``_calculate_spec_decoding_metrics``,
srt/speculative/dspark_components/dspark_observability.py ``DsparkInfoDumper``, ``ReqDetail``,
srt/managers/scheduler_components/internal_state.py ``dspark_info_record``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spectrace.importing.counting import SUMMED, notes_of, rounds_of_histogram, steps_of, summed_step
from spectrace.importing.reading import Refused, count, counts, inside, number, optional_count, text
from spectrace.importing.telling import Told

FACTS: Mapping[str, Any] = {"engine": {"name": "sglang"}}
_SHAPE = "SGLang's counts do not say whether proposals are chains or trees, of which they count all nodes"


def claims(document: Any) -> bool:
    """Whether a document is SGLang's."""
    return any(True for _ in _metas(document))


def requests(document: Any) -> Iterator[Told]:
    """The requests whose counts a response holds."""
    return (_told(meta) for meta in _metas(document))


def _metas(document: Any) -> Iterator[Mapping[str, Any]]:
    choices = inside(document, "choices")
    for item in [document, *(choices if isinstance(choices, list) else ())]:
        meta = inside(item, "meta_info")
        # A streamed response says it in every piece, summed up; only the last has ended.
        if (
            isinstance(meta, Mapping)
            and "spec_verify_ct" in meta
            and meta.get("finish_reason", "") is not None
        ):
            yield meta


def _told(meta: Mapping[str, Any]) -> Told:
    verified, prompt = count(meta, "spec_verify_ct"), optional_count(meta, "prompt_tokens")
    drafted, accepted = count(meta, "spec_num_proposed_drafts"), count(meta, "spec_num_correct_drafts")
    completed = optional_count(meta, "completion_tokens")
    at = 0 if prompt is None else prompt + 1
    notes = {"parents": _SHAPE}
    if meta.get("spec_correct_drafts_histogram") is None:
        emitted = accepted + verified if completed is None else completed
        steps: Any = [summed_step(drafted, accepted, emitted, at)]
        notes["num_accepted"] = SUMMED
    else:
        histogram = counts(meta["spec_correct_drafts_histogram"], "spec_correct_drafts_histogram")
        own = {"steps": sum(histogram), "accepted tokens": sum(a * n for a, n in enumerate(histogram))}
        if own != {"steps": verified, "accepted tokens": accepted}:
            raise Refused(
                f"field spec_correct_drafts_histogram comes to {own['steps']:,} steps and "
                f"{own['accepted tokens']:,} accepted tokens; spec_verify_ct is {verified:,}, "
                f"spec_num_correct_drafts {accepted:,}"
            )
        most = drafted // verified if verified and drafted % verified == 0 else None
        rounds = rounds_of_histogram(dict(enumerate(histogram)), drafted, most)
        steps, notes = (
            steps_of(rounds, at),
            notes | notes_of(rounds, has_prompt=prompt is not None, completed=completed),
        )
    said = {
        "accept_length": number(meta, "spec_accept_length"),
        "acceptance_rate": number(meta, "spec_accept_rate"),
    }
    reported = {name: value for name, value in said.items() if value is not None}
    return Told(
        name=text(meta, "id"),
        steps=steps,
        described={"reported": reported} if reported else {},
        notes=notes,
        facts={"reported": reported} if reported else {},
    )


# --- DSpark ----------------------------------------------------------------------------------------


def claims_dump(document: Any) -> bool:
    """Whether a document is a DSpark dump, or the server's internal state with one in it."""
    return any(True for _ in _dumps(document))


def requests_of_dump(document: Any) -> Iterator[Told]:
    """The requests of a dump, each with its rounds in the order in which they ran."""
    for dump in _dumps(document):
        by_request: dict[str, list[Mapping[str, Any]]] = {}
        for at, record in enumerate(dump["records"]):
            for fields in _rounds(record, f"records[{at}]"):
                by_request.setdefault(str(fields.pop("name")), []).append(fields)
        facts = {
            "engine": {"name": "sglang", "flags": {"method": "dspark"}},
            "speculation": {"num_draft_tokens": optional_count(dump, "gamma")},
        }
        for name, steps in by_request.items():
            yield Told(name=name, steps=steps, facts=facts)


def _dumps(document: Any) -> Iterator[Mapping[str, Any]]:
    states = inside(document, "internal_states")
    found = [document, inside(document, "dspark_info_record")]
    found += [inside(state, "dspark_info_record") for state in (states if isinstance(states, list) else ())]
    for item in found:
        is_dump = isinstance(item, Mapping) and "verify_num_draft_tokens" in item
        if is_dump and isinstance(item.get("records"), list):
            yield item


def _rounds(record: Any, where: str) -> Iterator[dict[str, Any]]:
    """The rounds of one forward pass."""
    if not isinstance(record, Mapping):
        raise Refused(f"field {where} must be an object")
    details = record.get("reqs")
    if details is None:
        return
    if not isinstance(details, list):
        raise Refused(f"field {where}.reqs must be a list")
    for at, detail in enumerate(details):
        try:
            yield {"engine_step": optional_count(record, "forward_ct"), "batch_row": at, **_round(detail)}
        except Refused as error:
            raise Refused(f"{where}.reqs[{at}]: {error}") from None


def _round(detail: Any) -> dict[str, Any]:
    """One round of one request: what was verified, what was committed.

    A cap may verify fewer tokens than were drafted; `acc_len` counts the target's own token.
    """
    if not isinstance(detail, Mapping):
        raise Refused("must be an object")
    drafted = counts(detail.get("draft_tokens"), "draft_tokens")
    proposal = drafted[: max(0, count(detail, "verify_len") - 1)]
    accepted = count(detail, "acc_len") - 1
    if not 0 <= accepted <= len(proposal):
        raise Refused(f"field acc_len: {accepted} tokens are accepted of {len(proposal)} verified")
    fields: dict[str, Any] = {
        "name": text(detail, "rid") or f"slot {count(detail, 'req_pool_index')}",
        # The last committed token is not in the cache yet.
        "position": count(detail, "prefix_len") + 1,
        "proposal_ids": proposal,
        "num_accepted": accepted,
        "num_accepted_reported": count(detail, "correct_drafts"),
        "emitted_ids": [*proposal[:accepted], count(detail, "bonus_token")],
        "final_kind": "bonus" if proposal and accepted == len(proposal) else None,
    }
    return {name: value for name, value in fields.items() if value is not None}
